--- include "call"
--- include "layout"
--- include "load_queue"
--- include "advance"
--- include "held"
--- include "how_settled"
--- include "note_settled"
--- include "let_go"
--- include "bury"
--- include "finish"
-- Settle failed messages: for each queue in the arguments from `at` its ident, the failures (FAILURE)
-- and their errors (each after two bytes with its length). `step` settles one and answers its letter.
-- A failure that was settled a while ago gets the same letter again, as a capital. The message of an uncounted failure was not tried at all. If many bytes die, the last failures stay as they are and get no
-- letters: the caller brings them again.
local function settle_failures(at, now, operation, step)
  local answers, stride, ways = {}, struct.size(FAILURE), FAILED[operation]
  for group = at, #ARGV, 3 do
    if deaths.bytes >= deaths.most_bytes then break end
    local q, items, errors = load_queue(ARGV[group]), ARGV[group + 1], ARGV[group + 2]
    if not q then
      answers[#answers + 1] = string.rep('l', #items / stride)
    else
      advance(q, now)
      local leases, ids, tokens = held(q, now, items, stride)
      local done, letters, counts, settled, from = {}, {}, {}, {}, 1
      for i, lease in ipairs(leases) do
        if deaths.bytes >= deaths.most_bytes then break end
        local size, start = struct.unpack('>I2', errors, from)
        local error = string.sub(errors, start, start + size - 1)
        from = start + size
        letters[i] = 'l'
        if not lease then
          local how = how_settled(now, tokens[i], ids[i])
          for letter, way in pairs(ways) do
            if how == way then letters[i] = string.upper(letter) end
          end
        else
          done[#done + 1] = ids[i]
          local _, _, delay, chance, handler = struct.unpack(FAILURE, items, (i - 1) * stride + 1)
          local uncounted = delay >= UNCOUNTED
          if uncounted then delay = delay - UNCOUNTED end
          if error == '' then error = redis.call('HGET', q.key.errors, ids[i]) or '' end
          letters[i] = step(q, lease, error, delay - 1, chance / 4294967296, counts, handler, uncounted)
          local way = ways[letters[i]]
          local noted = settled[way] or {tokens = {}, ids = {}}
          settled[way] = noted
          noted.tokens[#noted.tokens + 1], noted.ids[#noted.ids + 1] = tokens[i], ids[i]
        end
      end
      let_go(q, done)
      for way, noted in pairs(settled) do note_settled(now, way, noted.tokens, noted.ids) end
      if #done > 0 then finish(q, operation, counts, {}, now) end
      answers[#answers + 1] = table.concat(letters)
    end
  end
  return table.concat(answers)
end
