--- include "keys"
--- include "turns"
--- include "load_queue"
--- include "note_ask"
--- include "serve"
--- include "rotate"
-- Hand out up to `limit` messages of an environment: its queues take turns, each gets its share.
-- `visits` bounds the queues looked at in the whole call, and `handed` says when its reply is full.
local function serve_environment(environment, now, limit, visits, handed, serve_one)
  local keys = environment_keys(environment)
  local rotation = keys.active
  local got = 0
  note_ask(environment, now)
  while got < limit and visits.left > 0 and not handed.full do
    local ident = redis.call('ZRANGE', rotation, 0, 0)[1]
    local totals = redis.call('HMGET', keys.base, 'limit', 'running')
    local full = totals[1] and tonumber(totals[2] or 0) >= tonumber(totals[1])
    if full or not ident then break end
    visits.left = visits.left - 1
    local share = math.ceil((limit - got) / math.min(redis.call('ZCARD', rotation), MAX_SHARE))
    rotate(rotation, ident)
    local q = load_queue(ident)
    if q then
      got = got + serve_one(q, share)
    else
      redis.call('ZREM', rotation, ident)
    end
  end
  return got
end
