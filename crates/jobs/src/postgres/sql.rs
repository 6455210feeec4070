//! The statements. Times are milliseconds of Unix time; whose turn it is goes by the clock of the database, so that
//! servers need not agree on the time.
//!
//! `due` says when a job may be taken: at once, after a delay, or when the lease of whoever took it ends.

/// The clock of the database.
macro_rules! now {
    () => {
        "(extract(epoch from now()) * 1000)::bigint"
    };
}

/// Jobs as they are seen, with a word for how far each is.
macro_rules! seen {
    () => {
        concat!(
            "(SELECT number, id, owner, model, attempts, created, ended, status, bytes, idempotency, request_sum, ",
            "webhook_state, webhook_attempts, ",
            "CASE WHEN ended IS NULL AND server IS NOT NULL AND due > ",
            now!(),
            " THEN 'running' WHEN ended IS NULL THEN 'queued' WHEN cancelled THEN 'cancelled' ",
            "WHEN status < 400 THEN 'succeeded' ELSE 'failed' END AS state FROM jitney_jobs) AS seen "
        )
    };
}

/// Whether there are tables as this version makes them.
pub(super) const TABLES_EXIST: &str = "SELECT to_regclass('jitney_jobs_webhook') IS NOT NULL";

/// Two servers may begin at the same time, so they take turns.
pub(super) const MAKE_TABLES: &str = "
BEGIN;
SELECT pg_advisory_xact_lock(7723016480312);
CREATE TABLE IF NOT EXISTS jitney_jobs (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id text NOT NULL UNIQUE,
    owner text NOT NULL,
    model text NOT NULL,
    created bigint NOT NULL,
    bytes bigint NOT NULL,
    idempotency text,
    request_sum text,
    again boolean NOT NULL,
    cancelled boolean NOT NULL DEFAULT false,
    ended bigint,
    status integer,
    attempts integer NOT NULL DEFAULT 0,
    due bigint NOT NULL,
    server text
);
ALTER TABLE jitney_jobs ADD COLUMN IF NOT EXISTS webhook text,
    ADD COLUMN IF NOT EXISTS webhook_state text,
    ADD COLUMN IF NOT EXISTS webhook_attempts integer NOT NULL DEFAULT 0,
    ADD COLUMN IF NOT EXISTS webhook_due bigint;
CREATE UNIQUE INDEX IF NOT EXISTS jitney_jobs_key ON jitney_jobs (owner, idempotency) WHERE idempotency IS NOT NULL;
CREATE INDEX IF NOT EXISTS jitney_jobs_due ON jitney_jobs (due, number) WHERE ended IS NULL;
CREATE INDEX IF NOT EXISTS jitney_jobs_ended ON jitney_jobs (ended) WHERE ended IS NOT NULL;
CREATE INDEX IF NOT EXISTS jitney_jobs_owner ON jitney_jobs (owner, number);
CREATE TABLE IF NOT EXISTS jitney_job_messages (
    number bigint NOT NULL REFERENCES jitney_jobs ON DELETE CASCADE,
    answer boolean NOT NULL,
    head text NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (number, answer)
);
CREATE INDEX IF NOT EXISTS jitney_jobs_webhook ON jitney_jobs (webhook_due) WHERE webhook_due IS NOT NULL;
COMMIT;
";

/// Gives the number; nothing where the owner's key is known.
pub(super) const ADD: &str = concat!(
    "WITH added AS (INSERT INTO jitney_jobs (id, owner, model, created, bytes, idempotency, request_sum, again, ",
    "webhook, webhook_state, due) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $11, $12, ",
    now!(),
    ") ON CONFLICT (owner, idempotency) WHERE idempotency IS NOT NULL DO NOTHING RETURNING number), ",
    "kept AS (INSERT INTO jitney_job_messages (number, answer, head, body) SELECT number, false, $9, $10 FROM added) ",
    "SELECT number FROM added"
);

pub(super) const FIND: &str = concat!("SELECT * FROM ", seen!(), "WHERE owner = $1 AND id = $2");

pub(super) const FIND_BY_KEY: &str =
    concat!("SELECT * FROM ", seen!(), "WHERE owner = $1 AND idempotency = $2");

/// Up to `$3` jobs whose turn it is, for the server `$1` and a lease of `$2`.
pub(super) const TAKE: &str = concat!(
    "WITH taken AS MATERIALIZED (SELECT number FROM jitney_jobs WHERE ended IS NULL AND due <= ",
    now!(),
    " ORDER BY due, number LIMIT $3 FOR UPDATE SKIP LOCKED) ",
    "UPDATE jitney_jobs AS job SET server = $1, attempts = attempts + 1, due = $2 + ",
    now!(),
    " FROM taken WHERE job.number = taken.number ",
    "RETURNING job.number, id, owner, model, created, bytes, attempts"
);

/// The lease of `$2` goes on for the jobs `$3` of the server `$1`.
pub(super) const RENEW: &str = concat!(
    "UPDATE jitney_jobs SET due = $2 + ",
    now!(),
    " WHERE number = ANY($3) AND server = $1 AND ended IS NULL"
);

/// The job `$3` of the server `$1` may be taken after `$2`; `$4` attempts did not count.
pub(super) const PUT_BACK: &str = concat!(
    "UPDATE jitney_jobs SET server = NULL, attempts = attempts - $4, due = $2 + ",
    now!(),
    " WHERE number = $3 AND server = $1 AND ended IS NULL"
);

/// Gives one row where the job was not ended before and there is room for its answer. Whoever ends it first does,
/// also when its lease was over.
pub(super) const END: &str = concat!(
    "WITH done AS (UPDATE jitney_jobs SET webhook_due = CASE WHEN webhook IS NULL THEN NULL ELSE ",
    now!(),
    " END, ended = $2, status = $3, cancelled = $4, server = NULL,
        bytes = CASE WHEN again THEN bytes + $5 ELSE $5 END
    WHERE number = $1 AND ended IS NULL AND $5 - (CASE WHEN again THEN 0 ELSE bytes END) <= $6
    RETURNING number, again
), gone AS (
    DELETE FROM jitney_job_messages AS message USING done
    WHERE message.number = done.number AND NOT message.answer AND NOT done.again
), kept AS (
    INSERT INTO jitney_job_messages (number, answer, head, body) SELECT number, true, $7, $8 FROM done
)
SELECT number FROM done"
);

pub(super) const HAS_NOT_ENDED: &str =
    "SELECT number FROM jitney_jobs WHERE number = $1 AND ended IS NULL";

/// The webhook that is due first, for a lease of `$1`, but none of the receivers `$2`.
pub(super) const TAKE_WEBHOOK: &str = concat!(
    "WITH taken AS MATERIALIZED (SELECT number FROM jitney_jobs WHERE webhook_due <= ",
    now!(),
    " AND split_part(webhook, '/', 3) <> ALL ($2) ORDER BY webhook_due LIMIT 1 FOR UPDATE SKIP LOCKED), ",
    "told AS (UPDATE jitney_jobs AS job SET webhook_attempts = webhook_attempts + 1, webhook_due = $1 + ",
    now!(),
    " FROM taken WHERE job.number = taken.number RETURNING job.number, webhook) ",
    "SELECT seen.*, webhook FROM told JOIN ",
    seen!(),
    "ON seen.number = told.number"
);

/// The webhook of the job `$1` is as far as `$2` says, and is due after `$3`, if at all.
pub(super) const WEBHOOK_SENT: &str = concat!(
    "UPDATE jitney_jobs SET webhook_state = $2, webhook_due = $3 + ",
    now!(),
    " WHERE number = $1 AND webhook_due IS NOT NULL"
);

pub(super) const MESSAGE: &str =
    "SELECT head, body FROM jitney_job_messages WHERE number = $1 AND answer = $2";

pub(super) const REMOVE: &str =
    "DELETE FROM jitney_jobs WHERE owner = $1 AND id = $2 RETURNING number";

pub(super) const LIST: &str = concat!(
    "SELECT * FROM ",
    seen!(),
    "WHERE owner = $1 AND number < $2 AND ($3::text IS NULL OR model = $3) AND ($4::text IS NULL OR state = $4) ",
    "ORDER BY number DESC LIMIT $5"
);

/// Up to `$2` of those that ended by `$1`.
pub(super) const EXPIRE: &str = "
WITH old AS MATERIALIZED (
    SELECT number FROM jitney_jobs WHERE ended <= $1 LIMIT $2 FOR UPDATE SKIP LOCKED
)
DELETE FROM jitney_jobs AS job USING old WHERE job.number = old.number RETURNING job.number";

pub(super) const COUNTS: &str = concat!(
    "SELECT owner, state, count(*) AS count, sum(bytes)::bigint AS bytes, min(created) AS oldest FROM ",
    seen!(),
    "GROUP BY owner, state"
);
