-- part: LAST_ARRIVAL
coalesce((SELECT last_value FROM weir.dead_letters_seq_seq WHERE is_called), 0)

-- part: DEAD_TO_WALK
CASE WHEN by_group
    THEN coalesce((SELECT sum(dead_count) FROM weir.dead_letter_groups WHERE group_key = ANY(lanes)), 0)
    ELSE coalesce((SELECT sum(dead_count) FROM weir.dlq_summary WHERE consumer_key = ANY(lanes)), 0)
END

-- part: DIED_AGAIN
coalesce((SELECT deaths FROM weir.redrive_deaths WHERE task_id = t.id), 0)

-- part: ACTIONS
SELECT t.*, $DIED_AGAIN AS died_again FROM weir.dead_letter_tasks AS t

-- name: create_action
-- Write down a new action with its walk keys, its high-water mark and the most letters that it can find.
INSERT INTO weir.dead_letter_tasks (
    id, organization, project, environment, kind, state, dry_run, filter, rate_per_s,
    canary, canary_tolerance, canary_patience_ms, canary_state, patch,
    by_group, lanes, high_water, expected, created_by, created_at_ms, next_at_ms
)
SELECT %(id)s, %(organization)s, %(project)s, %(environment)s, %(kind)s, 'pending', %(dry_run)s, %(filter)s,
       %(rate_per_s)s, %(canary)s, %(canary_tolerance)s, %(canary_patience_ms)s, %(canary_state)s, %(patch)s,
       by_group, lanes, $LAST_ARRIVAL, $DEAD_TO_WALK, %(created_by)s, %(now_ms)s, %(now_ms)s
FROM (SELECT %(by_group)s::boolean AS by_group, %(walk_keys)s::bigint[] AS lanes) AS asked;

-- name: create_cancellation
-- Write down a new cancellation with the states that it walks and how many messages are in them.
INSERT INTO weir.dead_letter_tasks (
    id, organization, project, environment, kind, state, dry_run, filter, selection, rate_per_s,
    by_group, lanes, high_water, expected, created_by, created_at_ms, next_at_ms
)
VALUES (
    %(id)s, %(organization)s, %(project)s, %(environment)s, 'cancel', 'pending', %(dry_run)s, '{}', %(selection)s,
    %(rate_per_s)s, false, %(walk_keys)s::bigint[], 0, %(expected)s, %(created_by)s, %(now_ms)s, %(now_ms)s
);

-- name: create_log_replay
-- Write down a new replay from a log, with its selection and how many messages its span holds.
INSERT INTO weir.dead_letter_tasks (
    id, organization, project, environment, kind, state, dry_run, filter, selection, rate_per_s,
    canary, canary_tolerance, canary_patience_ms, canary_state,
    by_group, lanes, high_water, expected, created_by, created_at_ms, next_at_ms
)
VALUES (
    %(id)s, %(organization)s, %(project)s, %(environment)s, 'replay', 'pending', %(dry_run)s, '{}', %(selection)s,
    %(rate_per_s)s, %(canary)s, %(canary_tolerance)s, %(canary_patience_ms)s, %(canary_state)s,
    false, '{0}', 0, %(expected)s, %(created_by)s, %(now_ms)s, %(now_ms)s
);

-- name: start_counted
-- Write down an action that takes what a completed dry run counted, up to the bound that the dry run had.
INSERT INTO weir.dead_letter_tasks (
    id, organization, project, environment, kind, state, dry_run, filter, selection, patch, rate_per_s,
    canary, canary_tolerance, canary_patience_ms, canary_state,
    by_group, lanes, high_water, expected, created_by, created_at_ms, next_at_ms
)
SELECT %(id)s, organization, project, environment, kind, 'pending', false, filter, selection, patch, %(rate_per_s)s,
       %(canary)s, %(canary_tolerance)s, %(canary_patience_ms)s, %(canary_state)s,
       by_group, lanes, high_water, scanned, %(created_by)s, %(now_ms)s, %(now_ms)s
FROM weir.dead_letter_tasks
WHERE id = %(counted_by)s::uuid AND dry_run AND state = 'completed';

-- name: find_action
-- One action of an environment, with the deaths that followed it.
$ACTIONS WHERE $ENVIRONMENT AND id = %(id)s::uuid;

-- name: list_actions
-- The newest actions of an environment.
$ACTIONS WHERE $ENVIRONMENT ORDER BY id DESC LIMIT %(limit)s;

-- name: claim_action
-- Claim the due live action whose organization waited longest, or a given one, and count the try. The claim is committed
-- before the batch begins; it lasts longer with each try, so that a batch that ends its process comes back ever later.
UPDATE weir.dead_letter_tasks AS t
SET claim = %(claim)s::uuid, tries = tries + 1, claimed_until_ms = %(now_ms)s + %(claim_ms)s * (tries + 1)
WHERE id = (
    SELECT id FROM weir.dead_letter_tasks
    WHERE state IN ('pending', 'running')
      -- A pause or claim that ends later than one that begins now can is of before the clock stepped back, and has ended.
      AND (next_at_ms <= %(now_ms)s
           OR next_at_ms > %(now_ms)s + greatest(%(longest_ms)s, 2000 / greatest(coalesce(rate_per_s, 1), 1e-9)))
      AND (claimed_until_ms IS NULL OR claimed_until_ms <= %(now_ms)s
           OR claimed_until_ms > %(now_ms)s + %(claim_ms)s * (tries + 1))
      AND (%(id)s::uuid IS NULL OR id = %(id)s::uuid)
      AND organization <> ALL(%(busy)s::text[])
    ORDER BY array_position(%(served)s::text[], organization) NULLS FIRST, next_at_ms
    LIMIT 1
    -- Other runners skip the row instead of waiting for it. NO KEY lets rows of other tables still refer to it.
    FOR NO KEY UPDATE SKIP LOCKED
)
RETURNING t.*, $DIED_AGAIN AS died_again;

-- name: renew_claim
-- Keep an action for the runner that still works on it.
UPDATE weir.dead_letter_tasks SET claimed_until_ms = greatest(claimed_until_ms, %(until_ms)s)
WHERE id = %(id)s::uuid AND claim = %(claim)s::uuid;

-- name: hold_action
-- Lock an action whose claim still holds, in the transaction that saves the batch, and tell what its owner made of it.
SELECT state, finished_at_ms FROM weir.dead_letter_tasks
WHERE id = %(id)s::uuid AND claim = %(claim)s::uuid
FOR NO KEY UPDATE;

-- name: save_action
-- Save the action after a batch, in the transaction of the batch, and end the claim.
UPDATE weir.dead_letter_tasks
SET state = %(state)s, canary_state = %(canary_state)s, canary_ids = %(canary_ids)s::uuid[],
    canary_since_ms = %(canary_since_ms)s, lane = %(walked)s, after_enqueued_at_ms = %(after_enqueued_at_ms)s,
    after_id = %(after_id)s::uuid, cursor = %(cursor)s, scanned = %(scanned)s, matched = %(matched)s, done = %(done)s,
    skipped = %(skipped)s, samples = %(samples)s::uuid[], note = %(note)s, problem = %(problem)s,
    started_at_ms = %(started_at_ms)s,
    finished_at_ms = %(finished_at_ms)s, next_at_ms = %(next_at_ms)s,
    claim = NULL, claimed_until_ms = NULL, tries = 0
WHERE id = %(id)s::uuid;

-- name: put_off_action
-- End the claim without a batch, and look at the action again later.
UPDATE weir.dead_letter_tasks
SET next_at_ms = %(next_at_ms)s, note = %(note)s, tries = %(tries)s, claim = NULL, claimed_until_ms = NULL
WHERE id = %(id)s::uuid AND claim = %(claim)s::uuid;

-- name: fail_action
-- End an action that cannot go on, unless its owner ended or paused it meanwhile; return its state.
UPDATE weir.dead_letter_tasks
SET state = CASE WHEN state IN ('pending', 'running') THEN 'failed' ELSE state END,
    finished_at_ms = CASE WHEN state IN ('pending', 'running') THEN %(now_ms)s ELSE finished_at_ms END,
    note = %(note)s, tries = 0, claim = NULL, claimed_until_ms = NULL
WHERE id = %(id)s::uuid AND claim = %(claim)s::uuid
RETURNING state;

-- name: change_state
-- Pause, resume or cancel an action, unless its state does not allow it.
UPDATE weir.dead_letter_tasks
SET state = %(state)s, next_at_ms = %(now_ms)s, finished_at_ms = %(finished_at_ms)s, note = NULL
WHERE $ENVIRONMENT AND id = %(id)s::uuid AND state = ANY(%(allowed)s::text[]);

-- name: restart_action
-- Resume an action that its canary stopped, with a new canary. A redrive begins again, and also takes its own replays
-- that died; a replay from a log keeps its cursor.
UPDATE weir.dead_letter_tasks AS t
SET state = 'running', next_at_ms = %(now_ms)s, finished_at_ms = NULL, note = NULL, tries = 0,
    canary_state = CASE WHEN canary > 0 THEN 'sending' ELSE canary_state END, canary_ids = '{}',
    lane = 0, after_enqueued_at_ms = -1, after_id = '00000000-0000-0000-0000-000000000000',
    retried_to = $LAST_ARRIVAL, expected = done + $DEAD_TO_WALK,
    scanned = done, matched = done, skipped = 0, done_before = done, died_before = $DIED_AGAIN
WHERE $ENVIRONMENT AND id = %(id)s::uuid AND state = 'stopped_by_canary';
