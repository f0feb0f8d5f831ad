-- name: instance_get
-- The identity of this data directory.
SELECT id, created_at FROM instance LIMIT 1;

-- name: instance_add
-- Give the data directory its identity.
INSERT INTO instance (id, created_at) VALUES (:id, :created_at);

-- name: project_list
-- All registered projects, by name.
SELECT project_id, name, path, origin_url, created_at FROM projects ORDER BY name;

-- name: project_by_name
-- One project by its name.
SELECT project_id, name, path, origin_url, created_at FROM projects WHERE name = :name;

-- name: project_by_id
-- One project by its identity.
SELECT project_id, name, path, origin_url, created_at FROM projects WHERE project_id = :project_id;

-- name: project_add
-- Register a project.
INSERT INTO projects (project_id, name, path, origin_url, created_at)
VALUES (:project_id, :name, :path, :origin_url, :created_at);

-- name: project_remove
-- Unregister a project.
DELETE FROM projects WHERE name = :name;

-- name: dispatch_add
-- Accept a dispatch.
INSERT INTO dispatches (request_id, task_id, request, actor, state, error, http, created_at)
VALUES (:request_id, :task_id, :request, :actor, 'accepted', NULL, NULL, :created_at);

-- name: dispatch_get
-- What became of a dispatch.
SELECT request_id, task_id, request, actor, state, error, http FROM dispatches
WHERE request_id = :request_id;

-- name: dispatch_settle
-- A dispatch became a task or was refused.
UPDATE dispatches SET state = :state, error = :error, http = :http WHERE request_id = :request_id;

-- name: dispatches_accepted
-- Dispatches that a crash left without an outcome.
SELECT request_id, task_id, request, actor, state, error, http FROM dispatches
WHERE state = 'accepted' ORDER BY created_at;

-- name: dispatches_forget
-- Old idempotency keys of dispatches that left no task.
DELETE FROM dispatches WHERE created_at < :before AND state <> 'accepted';

-- name: request_get
-- The answer that was given under an idempotency key.
SELECT operation, response FROM requests WHERE key = :key;

-- name: request_add
-- Remember an answer under its idempotency key.
INSERT INTO requests (key, operation, response, created_at)
VALUES (:key, :operation, :response, :created_at);

-- name: requests_forget
-- Old idempotency keys.
DELETE FROM requests WHERE created_at < :before;

-- name: task_next_number
-- The next number of a task, which orders tasks whatever the clock does.
SELECT coalesce(max(number), 0) + 1 FROM tasks;

-- name: task_add
-- A new task.
INSERT INTO tasks (id, number, name, state, target, project_id, project_name, repo_path, work_dir,
    workspace, workspace_kind, workspace_state, branch, base_commit, plan_name, plan_summary,
    executor, model, session_id, executor_path, executor_version, verify, use_setup, tickets_made,
    frames_made, done_note, last_seq, created_at, updated_at)
VALUES (:id, :number, :name, :state, :target, :project_id, :project_name, :repo_path, :work_dir,
    :workspace, :workspace_kind, :workspace_state, :branch, :base_commit, :plan_name,
    :plan_summary, :executor, :model, :session_id, :executor_path, :executor_version, :verify,
    :use_setup, :tickets_made, :frames_made, :done_note, :last_seq, :created_at, :updated_at);

-- name: task_save
-- What may change in a task.
UPDATE tasks SET state = :state, workspace = :workspace, workspace_state = :workspace_state,
    branch = :branch, session_id = :session_id, executor_path = :executor_path,
    executor_version = :executor_version, tickets_made = :tickets_made,
    frames_made = :frames_made, done_note = :done_note, last_seq = :last_seq,
    updated_at = :updated_at
WHERE id = :id;

-- name: task_get
-- One task by its full id.
SELECT * FROM tasks WHERE id = :id;

-- name: task_ids_by_prefix
-- Ids that start with a prefix (a range, so that the index serves it).
SELECT id FROM tasks WHERE id >= :low AND id < :high ORDER BY id LIMIT 20;

-- name: task_list
-- Tasks, newest first, below a number.
SELECT * FROM tasks WHERE number < :before ORDER BY number DESC LIMIT :limit;

-- name: task_list_by_state
-- Tasks in one state, newest first, below a number.
SELECT * FROM tasks WHERE state = :state AND number < :before ORDER BY number DESC LIMIT :limit;

-- name: task_counts
-- How many tasks are in each state.
SELECT state, count(*) FROM tasks GROUP BY state;

-- name: tasks_open
-- Ids of tasks that are not over, oldest first.
SELECT id FROM tasks WHERE state IN ('pending', 'running', 'waiting_answer', 'waiting_review')
ORDER BY number;

-- name: tasks_terminal_with_workspace
-- Tasks that are over and whose managed worktree may still be there.
SELECT id FROM tasks WHERE state IN ('completed', 'failed') AND workspace_state <> 'gone'
    AND workspace_kind = 'managed' ORDER BY number;

-- name: task_holder
-- The open task that works in a directory.
SELECT id, name, state FROM tasks WHERE work_dir = :work_dir
    AND state IN ('pending', 'running', 'waiting_answer', 'waiting_review') LIMIT 1;

-- name: tasks_open_of_project
-- How many open tasks a project has.
SELECT count(*) FROM tasks WHERE project_id = :project_id
    AND state IN ('pending', 'running', 'waiting_answer', 'waiting_review');

-- name: turn_save
-- A turn, new or changed.
INSERT INTO turns (task_id, number, state, actor, run_id, start_head, final_text, fault,
    guidance, outcome, started_at, ended_at)
VALUES (:task_id, :number, :state, :actor, :run_id, :start_head, :final_text, :fault,
    :guidance, :outcome, :started_at, :ended_at)
ON CONFLICT (task_id, number) DO UPDATE SET state = excluded.state, run_id = excluded.run_id,
    start_head = excluded.start_head, final_text = excluded.final_text, fault = excluded.fault,
    guidance = excluded.guidance, outcome = excluded.outcome, ended_at = excluded.ended_at;

-- name: prompt_add
-- What a turn begins with.
INSERT INTO prompts (task_id, turn, text) VALUES (:task_id, :turn, :text);

-- name: prompt_get
-- What a turn began with.
SELECT text FROM prompts WHERE task_id = :task_id AND turn = :turn;

-- name: prompts_of_task
-- What the turns of a task began with, in order.
SELECT turn, text FROM prompts WHERE task_id = :task_id ORDER BY turn;

-- name: tasks_waiting
-- How many tasks have not started.
SELECT count(*) FROM tasks WHERE state = 'pending';

-- name: turns_of_task
-- All turns of a task in order.
SELECT * FROM turns WHERE task_id = :task_id ORDER BY number;

-- name: turn_last
-- The newest turn of a task.
SELECT * FROM turns WHERE task_id = :task_id ORDER BY number DESC LIMIT 1;

-- name: run_save
-- A run, new or changed.
INSERT INTO runs (id, task_id, state, driver, read_offset, read_skip, inputs_made, stderr_tail,
    pending_prompt, context, unrecognised, exit_code, created_at, ended_at)
VALUES (:id, :task_id, :state, :driver, :read_offset, :read_skip, :inputs_made, :stderr_tail,
    :pending_prompt, :context, :unrecognised, :exit_code, :created_at, :ended_at)
ON CONFLICT (id) DO UPDATE SET state = excluded.state, driver = excluded.driver,
    read_offset = excluded.read_offset, read_skip = excluded.read_skip,
    inputs_made = excluded.inputs_made, stderr_tail = excluded.stderr_tail,
    pending_prompt = excluded.pending_prompt, context = excluded.context,
    unrecognised = excluded.unrecognised, exit_code = excluded.exit_code,
    ended_at = excluded.ended_at;

-- name: run_over
-- An earlier run is known to have ended.
UPDATE runs SET state = 'ended', pending_prompt = '', ended_at = coalesce(ended_at, :ended_at)
WHERE id = :id AND state = 'ending';

-- name: run_last
-- The newest run of a task.
SELECT * FROM runs WHERE task_id = :task_id ORDER BY created_at DESC, rowid DESC LIMIT 1;

-- name: run_ids
-- All runs of a task.
SELECT id, state FROM runs WHERE task_id = :task_id ORDER BY created_at, rowid;

-- name: runs_not_ended
-- Tasks that have a run which is not known to have ended.
SELECT task_id FROM runs WHERE state <> 'ended';

-- name: input_add
-- One more input of a run.
INSERT INTO inputs (run_id, number, data, ticket_id, sent_at)
VALUES (:run_id, :number, :data, :ticket_id, NULL);

-- name: inputs_unsent
-- Inputs that the shim has not confirmed, in order.
SELECT number, data, ticket_id FROM inputs WHERE run_id = :run_id AND sent_at IS NULL
ORDER BY number LIMIT 100;

-- name: input_sent
-- The shim has written an input; its bytes are not needed any more.
UPDATE inputs SET sent_at = :sent_at, data = NULL WHERE run_id = :run_id AND number = :number;

-- name: ticket_save
-- A ticket, new or changed.
INSERT INTO tickets (id, ref, task_id, turn, run_id, ask_id, kind, state, request, marks,
    fingerprint, reusable, decision, reason, answer, source, answered_by, input_number,
    void_reason, created_at, answered_at, delivered_at, acknowledged_at)
VALUES (:id, :ref, :task_id, :turn, :run_id, :ask_id, :kind, :state, :request, :marks,
    :fingerprint, :reusable, :decision, :reason, :answer, :source, :answered_by, :input_number,
    :void_reason, :created_at, :answered_at, :delivered_at, :acknowledged_at)
ON CONFLICT (id) DO UPDATE SET state = excluded.state, marks = excluded.marks,
    fingerprint = excluded.fingerprint, decision = excluded.decision, reason = excluded.reason,
    answer = excluded.answer, source = excluded.source, answered_by = excluded.answered_by,
    input_number = excluded.input_number, void_reason = excluded.void_reason,
    answered_at = excluded.answered_at, delivered_at = excluded.delivered_at,
    acknowledged_at = excluded.acknowledged_at;

-- name: ticket_get
-- One ticket by its full id.
SELECT * FROM tickets WHERE id = :id;

-- name: tickets_of_task
-- All tickets of a task in order.
SELECT * FROM tickets WHERE task_id = :task_id ORDER BY created_at, rowid;

-- name: tickets_unsettled
-- Tickets of a task on which something may still happen.
SELECT * FROM tickets WHERE task_id = :task_id AND state IN ('open', 'answered', 'delivered')
ORDER BY created_at, rowid;

-- name: ticket_open_count
-- How many tickets of a task wait for the coordinator.
SELECT count(*) FROM tickets WHERE task_id = :task_id AND state = 'open';

-- name: grant_find
-- A human grant of an identical request within the task that reached the executor.
SELECT id, ref FROM tickets WHERE task_id = :task_id AND fingerprint = :fingerprint
    AND kind = 'gate' AND decision = 'allow' AND source = 'coordinator' AND reusable = 1
    AND delivered_at IS NOT NULL ORDER BY created_at LIMIT 1;

-- name: event_add
-- A fact, numbered by the database.
INSERT INTO events (task_id, type, actor, wakes, payload, created_at)
VALUES (:task_id, :type, :actor, :wakes, :payload, :created_at);

-- name: events_after
-- Events of a task after a sequence number, ascending.
SELECT seq, task_id, type, actor, wakes, payload, created_at FROM events
WHERE task_id = :task_id AND seq > :after ORDER BY seq LIMIT :limit;

-- name: events_waking_after
-- Events that wake a coordinator, after a sequence number, ascending.
SELECT seq, task_id, type, actor, wakes, payload, created_at FROM events
WHERE task_id = :task_id AND wakes = 1 AND seq > :after ORDER BY seq LIMIT :limit;

-- name: events_waking_count
-- How many events after a sequence number would have woken a coordinator.
SELECT count(*) FROM events WHERE task_id = :task_id AND wakes = 1 AND seq > :after AND seq <= :upto;

-- name: events_newest
-- The newest events of a task, newest first.
SELECT seq, task_id, type, actor, wakes, payload, created_at FROM events
WHERE task_id = :task_id ORDER BY seq DESC LIMIT :limit;

-- name: event_newest_time
-- When the newest event of the machine was recorded.
SELECT created_at FROM events WHERE seq = (SELECT max(seq) FROM events);

-- name: frame_add
-- One frame of the live view.
INSERT INTO frames (task_id, n, turn, kind, data, at)
VALUES (:task_id, :n, :turn, :kind, :data, :at);

-- name: frames_from
-- Frames of a task from a number on.
SELECT n, turn, kind, data, at FROM frames WHERE task_id = :task_id AND n >= :start
ORDER BY n LIMIT :limit;

-- name: frames_prune
-- Frames below a number go.
DELETE FROM frames WHERE task_id = :task_id AND n < :start;

-- name: frames_first
-- The oldest frame that is kept.
SELECT min(n) FROM frames WHERE task_id = :task_id;

-- name: outbox_add
-- One more effect.
INSERT INTO outbox (task_id, kind, payload, state, attempts, error, created_at)
VALUES (:task_id, :kind, :payload, 'due', 0, '', :created_at);

-- name: outbox_due
-- Effects of a task that have to be carried out, in order.
SELECT id, kind, payload, attempts, error FROM outbox WHERE task_id = :task_id AND state = 'due'
ORDER BY id;

-- name: outbox_settle
-- An effect is done or was given up.
UPDATE outbox SET state = :state, error = :error, done_at = :done_at WHERE id = :id;

-- name: outbox_failed_once
-- An effect did not work and stays due.
UPDATE outbox SET attempts = attempts + 1, error = :error WHERE id = :id;

-- name: outbox_tasks
-- Tasks with effects that have to be carried out.
SELECT DISTINCT task_id FROM outbox WHERE state = 'due';
