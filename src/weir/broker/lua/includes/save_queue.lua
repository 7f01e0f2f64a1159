--- include "call"
--- include "keys"
--- include "state_record"
--- include "depth"
--- include "refresh"
--- include "upgrade_queue"
--- include "set_alarm"
--- include "note_touched"
--- include "note_limited"
--- include "environment_totals"
-- Write a queue back: state, environment totals, timer and rotation. Remembers the environment's
-- limit, depth and running for the event. Totals that did not change are not written again.
local function save_queue(q, now)
  local holds = depth(q)
  set_alarm(q)
  note_touched(q, now)
  if q.older then upgrade_queue(q, now) end
  redis.call('HSET', q.key.base, 'state', pack_state(q) .. q.history)
  local base, waiting, running = q.environment_key.base, nil, nil
  if holds ~= q.depth_before then waiting = redis.call('HINCRBY', base, 'depth', holds - q.depth_before) end
  if q.running ~= q.running_before then
    running = redis.call('HINCRBY', base, 'running', q.running - q.running_before)
  end
  q.depth_before, q.running_before = holds, q.running
  local totals = environment_totals(q)
  q.environment_limit, q.environment_depth, q.environment_running =
    tonumber(totals[1] or 0), waiting or tonumber(totals[2] or 0), running or tonumber(totals[3] or 0)
  if totals[1] or totals[4] then
    note_limited(base, totals[4], q.environment_limit, q.environment_running, now)
  end
  refresh(q, q.environment_limit, q.environment_running)
  q.saved, q.totals = true, nil
end
