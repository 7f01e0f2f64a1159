--- include "keys"
--- include "note_span"
--- include "ask_ms"
-- Note in an environment that somebody asked it for messages. Its log `asked` holds the spans in which nobody asked. Such a
-- span begins a second after an ask.
local function note_ask(environment, now)
  local base = environment_keys(environment).base
  local log = redis.call('HGET', base, 'asked')
  local since = log and struct.unpack('>I8', log) or 0
  redis.call('HSET', base, 'asked', note_span(log, since, now, math.max(since, now + ASK_MS)))
end
