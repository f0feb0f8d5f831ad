-- Times are milliseconds since 1970 UTC. JSON is text. Enumerations are lifecycle states.

CREATE TABLE instance (
    id TEXT PRIMARY KEY,
    created_at INTEGER NOT NULL
) STRICT;

CREATE TABLE projects (
    project_id TEXT PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    path TEXT NOT NULL UNIQUE,
    origin_url TEXT NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;

-- A dispatch is accepted before anything is looked at, so that a retry of the same
-- request finds it, whatever happened in between.
CREATE TABLE dispatches (
    request_id TEXT PRIMARY KEY,
    task_id TEXT NOT NULL UNIQUE,
    request TEXT NOT NULL,
    actor TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('accepted', 'created', 'refused')),
    error TEXT,
    http INTEGER,
    created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX dispatches_by_state ON dispatches (state) WHERE state = 'accepted';
CREATE INDEX dispatches_by_age ON dispatches (created_at);

-- Answers to other calls, kept under the caller's idempotency key.
CREATE TABLE requests (
    key TEXT PRIMARY KEY,
    operation TEXT NOT NULL,
    response TEXT NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX requests_by_age ON requests (created_at);

CREATE TABLE tasks (
    id TEXT PRIMARY KEY,
    number INTEGER NOT NULL UNIQUE,
    name TEXT NOT NULL,
    state TEXT NOT NULL,
    target TEXT NOT NULL,
    project_id TEXT NOT NULL,
    project_name TEXT NOT NULL,
    repo_path TEXT NOT NULL,
    work_dir TEXT NOT NULL,
    workspace TEXT NOT NULL,
    workspace_kind TEXT NOT NULL,
    workspace_state TEXT NOT NULL,
    branch TEXT NOT NULL,
    base_commit TEXT NOT NULL,
    plan_name TEXT NOT NULL,
    plan_summary TEXT NOT NULL,
    executor TEXT NOT NULL,
    model TEXT NOT NULL,
    session_id TEXT NOT NULL,
    executor_path TEXT NOT NULL,
    executor_version TEXT NOT NULL,
    verify TEXT NOT NULL,
    use_setup INTEGER NOT NULL,
    tickets_made TEXT NOT NULL,
    frames_made INTEGER NOT NULL,
    done_note TEXT NOT NULL,
    last_seq INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;
CREATE INDEX tasks_by_state ON tasks (state, number);
CREATE INDEX tasks_by_work_dir ON tasks (work_dir, state);
CREATE INDEX tasks_by_project ON tasks (project_id, state);

CREATE TABLE turns (
    task_id TEXT NOT NULL REFERENCES tasks (id),
    number INTEGER NOT NULL,
    state TEXT NOT NULL,
    actor TEXT NOT NULL,
    run_id TEXT NOT NULL,
    start_head TEXT NOT NULL,
    final_text TEXT NOT NULL,
    fault TEXT,
    guidance TEXT NOT NULL,
    outcome TEXT,
    started_at INTEGER NOT NULL,
    ended_at INTEGER,
    PRIMARY KEY (task_id, number)
) STRICT, WITHOUT ROWID;

-- What each turn began with, apart from the rows that change with every step. The first
-- turn's is the plan.
CREATE TABLE prompts (
    task_id TEXT NOT NULL REFERENCES tasks (id),
    turn INTEGER NOT NULL,
    text TEXT NOT NULL,
    PRIMARY KEY (task_id, turn)
) STRICT, WITHOUT ROWID;

CREATE TABLE runs (
    id TEXT PRIMARY KEY,
    task_id TEXT NOT NULL REFERENCES tasks (id),
    state TEXT NOT NULL,
    driver TEXT NOT NULL,
    read_offset INTEGER NOT NULL,
    read_skip INTEGER NOT NULL,
    inputs_made INTEGER NOT NULL,
    stderr_tail TEXT NOT NULL,
    pending_prompt TEXT NOT NULL,
    context TEXT NOT NULL,
    unrecognised TEXT NOT NULL,
    exit_code INTEGER,
    created_at INTEGER NOT NULL,
    ended_at INTEGER
) STRICT;
CREATE INDEX runs_by_task ON runs (task_id, created_at);
CREATE INDEX runs_by_state ON runs (state) WHERE state <> 'ended';

-- Numbered input of a run, written by its shim at most once each.
CREATE TABLE inputs (
    run_id TEXT NOT NULL REFERENCES runs (id),
    number INTEGER NOT NULL,
    data BLOB,
    ticket_id TEXT,
    sent_at INTEGER,
    PRIMARY KEY (run_id, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX inputs_unsent ON inputs (run_id, number) WHERE sent_at IS NULL;

CREATE TABLE tickets (
    id TEXT PRIMARY KEY,
    ref TEXT NOT NULL,
    task_id TEXT NOT NULL REFERENCES tasks (id),
    turn INTEGER NOT NULL,
    run_id TEXT NOT NULL,
    ask_id TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('gate', 'ask')),
    state TEXT NOT NULL,
    request TEXT NOT NULL,
    marks TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    reusable INTEGER NOT NULL,
    decision TEXT NOT NULL,
    reason TEXT NOT NULL,
    answer TEXT,
    source TEXT NOT NULL,
    answered_by TEXT NOT NULL,
    input_number INTEGER,
    void_reason TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    answered_at INTEGER,
    delivered_at INTEGER,
    acknowledged_at INTEGER,
    UNIQUE (task_id, ref)
) STRICT;
CREATE INDEX tickets_by_task ON tickets (task_id, state);
CREATE INDEX tickets_by_ask ON tickets (run_id, ask_id);
CREATE INDEX grants ON tickets (task_id, fingerprint)
    WHERE kind = 'gate' AND decision = 'allow' AND source = 'coordinator' AND reusable = 1;

CREATE TABLE events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    task_id TEXT NOT NULL REFERENCES tasks (id),
    type TEXT NOT NULL,
    actor TEXT NOT NULL,
    wakes INTEGER NOT NULL,
    payload TEXT NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX events_by_task ON events (task_id, seq);
CREATE INDEX waking_events ON events (task_id, seq) WHERE wakes = 1;

CREATE TABLE frames (
    task_id TEXT NOT NULL REFERENCES tasks (id),
    n INTEGER NOT NULL,
    turn INTEGER NOT NULL,
    kind TEXT NOT NULL,
    data TEXT NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (task_id, n)
) STRICT, WITHOUT ROWID;

-- What has to be done after the commit that asked for it, and again after a crash.
CREATE TABLE outbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    task_id TEXT NOT NULL REFERENCES tasks (id),
    kind TEXT NOT NULL,
    payload TEXT NOT NULL,
    state TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    error TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    done_at INTEGER
) STRICT;
CREATE INDEX outbox_due ON outbox (task_id, id) WHERE state = 'due';
