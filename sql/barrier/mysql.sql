-- The barrier of the look-back, for an application on MySQL 8.0 or MariaDB 10.6, or newer, with InnoDB:
-- docs/guide/lookback-barrier.md is the recipe. Run it in the application's own database, with its mysql or
-- mariadb client.
--
-- One row per id. The first insert decides the id: it comes from the business transaction ('commit',
-- visible to others when it commits) or from the answer to the relay ('rollback'). The primary key lets
-- one of them in; the other waits while that one's transaction is open, and then fails.

-- varbinary: ids are compared by their bytes. A text type might ignore case or trailing spaces.
create table lookback_barrier (
	biz_type varbinary(100) not null,
	biz_id   varbinary(500) not null,
	outcome  varchar(8) character set ascii not null,
	at       timestamp(6) not null default current_timestamp(6),
	asked    int not null default 0, -- further questions after the first answer
	primary key (biz_type, biz_id),
	index by_time (at), -- for lookback_forget
	constraint outcome_is_commit_or_rollback check (outcome in ('commit', 'rollback'))
) engine = InnoDB;

delimiter //

-- The first statement of the business transaction, after START TRANSACTION. If it fails, roll back:
-- unlike PostgreSQL, the server would let the transaction go on. SQLSTATE
--   LB001  the relay received "rollback": the id is over; send a rollback, or nothing
--   LB002  a transaction of this id has committed before: it is done already
-- After any other error, such as a deadlock or a lock timeout: roll back, and try again.
create procedure lookback_begin(in of_type varchar(100) character set utf8mb4,
	in of_id varchar(500) character set utf8mb4)
modifies sql data
begin
	declare found_outcome varchar(8) character set ascii;
	declare is_there boolean default false;
	declare continue handler for 1062 set is_there = true;

	insert into lookback_barrier (biz_type, biz_id, outcome) values (of_type, of_id, 'commit');
	if is_there then
		-- a read that locks: a plain one may see an older state
		select b.outcome into found_outcome from lookback_barrier b
		where b.biz_type = of_type and b.biz_id = of_id for update;
		if found_outcome = 'commit' then
			signal sqlstate 'LB002' set message_text = 'look-back: it was committed before';
		end if;
		signal sqlstate 'LB001' set message_text =
			'look-back: it can no longer commit, the relay was answered rollback';
	end if;
end//

-- The answer to the relay for one id: commit, rollback, or pending (its transaction is open, or another
-- caller answers at this moment). It makes its own transactions, and so commits an open one: call it
-- outside of any transaction. Its answers are committed. Calls may be repeated, and may run
-- concurrently.
create procedure lookback_check_one(in of_type varchar(100) character set utf8mb4,
	in of_id varchar(500) character set utf8mb4, out decision varchar(8) character set ascii)
modifies sql data
begin
	declare patience int default @@session.innodb_lock_wait_timeout;
	declare tries, seen int default 0;
	declare is_there, is_busy boolean;
	-- a lock timeout, a deadlock, or a row that another session changed (MariaDB with
	-- innodb_snapshot_isolation)
	declare continue handler for 1205, 1213, 1020 set is_busy = true;
	declare continue handler for 1062 set is_there = true;
	declare continue handler for not found begin end;
	declare exit handler for sqlexception
	begin
		rollback;
		set session innodb_lock_wait_timeout = patience;
		resignal;
	end;

	set session innodb_lock_wait_timeout = 1;
	commit; -- for a session without autocommit
	repeat
		set is_there = false, is_busy = false, decision = null;
		-- without locks, which would wait for an open transaction
		set transaction isolation level read uncommitted;
		start transaction;
		select count(*) into seen from lookback_barrier b
		where b.biz_type = of_type and b.biz_id = of_id;
		commit;
		set transaction isolation level read committed;
		start transaction;
		select b.outcome into decision from lookback_barrier b
		where b.biz_type = of_type and b.biz_id = of_id;
		if decision is not null then
			-- Others see a commit before it is on disk; this one's own commit is behind it there.
			update lookback_barrier b set b.asked = b.asked + 1
			where b.biz_type = of_type and b.biz_id = of_id;
		elseif seen > 0 then
			set is_busy = true;
		else
			insert into lookback_barrier (biz_type, biz_id, outcome)
			values (of_type, of_id, 'rollback');
			if not is_there then
				set decision = 'rollback';
			end if;
		end if;
		if is_busy then
			rollback;
			set decision = 'pending';
		else
			commit;
		end if;
		set tries = tries + 1;
	-- a row that came between the query and the insert is read again
	until decision is not null or tries >= 3 end repeat;
	set decision = coalesce(decision, 'pending');
	set session innodb_lock_wait_timeout = patience;
end//

-- The same for many: a JSON array of ids; returns rows of (biz_id, decision).
create procedure lookback_check(in of_type varchar(100) character set utf8mb4, in of_ids json)
modifies sql data
begin
	declare place int default 0;
	declare one varchar(500) character set utf8mb4;
	declare answer varchar(8) character set ascii;

	create temporary table if not exists lookback_answer (
		biz_id varchar(500) character set utf8mb4 not null,
		decision varchar(8) character set ascii not null) engine = memory;
	truncate table lookback_answer;
	while place < json_length(of_ids) do
		set one = json_unquote(json_extract(of_ids, concat('$[', place, ']')));
		call lookback_check_one(of_type, one, answer);
		insert into lookback_answer values (one, answer);
		set place = place + 1;
	end while;
	select biz_id, decision from lookback_answer;
	drop temporary table lookback_answer;
end//

-- Deletes rows older than that many days, at most that many rows; call it until `gone` is 0. Without its
-- row, the answer for a committed id is "rollback": keep rows for longer than the relay may ask.
create procedure lookback_forget(in older_than_days int, in most int, out gone int)
modifies sql data
begin
	if older_than_days < 1 then
		signal sqlstate '45000' set message_text = 'rows of less than a day are kept';
	end if;
	delete from lookback_barrier where at < current_timestamp(6) - interval older_than_days day
	order by at limit most;
	set gone = row_count();
end//

delimiter ;
