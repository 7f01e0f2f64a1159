--- include "mark"
--- include "entry"
-- What a slot remembers, unpacked: when the call was (nil if an older program noted it), its id, a letter for each
-- of its messages, the ids of the first messages of all DUPLICATE and KEY_REUSED, and the digest of its messages ('' if it was
-- not told). Older programs noted only y and n.
local function remembered_call(packed)
  if string.byte(packed) < MARK then
    local size, start = struct.unpack('>I2', packed)
    local letters = string.gsub(string.gsub(string.sub(packed, start + size), 'y', ACCEPTED), 'n', GATED)
    return nil, string.sub(packed, start, start + size - 1), letters, '', ''
  end
  local mark, at, size, count, start = struct.unpack('>I1I8I2I2', packed)
  local id, rest = string.sub(packed, start, start + size - 1), start + size
  local ends = mark == MARK + 1 and #packed or #packed - 16
  return at, id, string.sub(packed, rest, rest + count - 1), string.sub(packed, rest + count, ends), string.sub(packed, ends + 1)
end
