-- $1 name, $2 version, $3 checksum, $4 oldest program, $5 this program
insert into outbox.migration (name, version, checksum, oldest_program, program)
values ($1::text, $2::int, $3::text, $4::text, $5::text)
on conflict (name) do update set checksum = excluded.checksum,
	oldest_program = excluded.oldest_program, program = excluded.program,
	applied_at = excluded.applied_at, applied_by = excluded.applied_by;
