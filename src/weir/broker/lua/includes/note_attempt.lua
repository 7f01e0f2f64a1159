--- include "life_layout"
--- include "keeps_life"
-- Add an attempt to `w.log`: how many attempts it holds (1 byte), then each of them (LIFE_ATTEMPT and the consumer's name).
-- Only the last attempts are kept. An attempt that an older program began is left out, because nobody noted its start.
local function note_attempt(q, w, id, handed_out, ended, how, consumer)
  if not handed_out or not keeps_life(q, id) then return end
  local log, first = w.log or '\0', 2
  local count = string.byte(log)
  if count == MAX_LIFE_ATTEMPTS then
    first = 2 + struct.size(LIFE_ATTEMPT) + string.byte(log, 1 + struct.size(LIFE_ATTEMPT))
    count = count - 1
  end
  local began = struct.unpack('>I6', handed_out)
  w.log = string.char(count + 1) .. string.sub(log, first)
    .. struct.pack(LIFE_ATTEMPT, began, math.max(began, ended), how, #consumer) .. consumer
end
