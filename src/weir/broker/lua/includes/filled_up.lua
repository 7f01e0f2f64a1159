--- include "mark"
-- A packed record, brought to this program's version: fields that later versions added are 0. The bytes behind
-- the fields stay. A record of a newer program ends the script before it changes anything.
local function filled_up(packed, name, newest, sizes)
  local first = string.byte(packed)
  local version = first >= MARK and first - MARK or 0
  if version > newest then error('NEWER ' .. name .. ' ' .. version) end
  local fields = version > 0 and string.sub(packed, 2) or packed
  local size = sizes[version]
  local missing = sizes[newest] - math.min(#fields, size)
  return string.char(MARK + newest) .. string.sub(fields, 1, size) .. string.rep('\0', missing)
    .. string.sub(fields, size + 1)
end
