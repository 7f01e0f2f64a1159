--- include "layout"
-- The place at the end of a body, and the readings behind it; nil for each that an older program did not write.
local function place_of_body(body)
  local mark, place, size = string.byte(body, 6), struct.size(PLACE), struct.size(READINGS)
  if mark >= PLACED + READ then
    return string.sub(body, -place - size, -size - 1), string.sub(body, -size)
  elseif mark >= PLACED then
    return string.sub(body, -place), nil
  end
  return nil, nil
end
