-- The functions that recognise another server fit what this server refuses, also if that changed meanwhile.
select outbox.choose_evidence(false);
