-- name: insert_audit
-- In the transaction of the verb that it records; a refusal in a transaction of its own.
INSERT INTO leasehold_audit (at, actor, verb, target, detail, outcome, error)
VALUES (:now, :actor, :verb, :target, :detail, :outcome, :error);

-- name: list_audit
-- Newest first. Then the list_audit.by_… of the index to walk, the list_audit.where_… of the filters, and the page of
-- that index.
SELECT seq, at, actor, verb, target, detail, outcome, error FROM leasehold_audit WHERE

-- name: list_audit.by_seq
 seq < :before

-- name: list_audit.by_actor
 actor = :actor AND seq < :before

-- name: list_audit.by_verb
 verb = :verb AND seq < :before

-- name: list_audit.by_target
 target = :target AND seq < :before

-- name: list_audit.where_actor
 AND actor = :actor

-- name: list_audit.where_verb
 AND verb = :verb

-- name: list_audit.page_by_seq
 ORDER BY seq DESC LIMIT :limit

-- name: list_audit.page_by_actor
 ORDER BY seq DESC LIMIT :limit

-- name: list_audit.page_by_verb
 ORDER BY seq DESC LIMIT :limit

-- name: list_audit.page_by_target
 ORDER BY seq DESC LIMIT :limit

-- name: find_old_audit
-- The first rows are the oldest.
SELECT a.seq FROM (SELECT x.seq, x.at FROM leasehold_audit AS x ORDER BY x.seq LIMIT :limit) AS a
WHERE a.at < :now - CAST(round(:age * 1e6) AS INTEGER);

-- name: prune_audit
DELETE FROM leasehold_audit WHERE seq IN (SELECT value FROM json_each(:seqs)) RETURNING seq;
