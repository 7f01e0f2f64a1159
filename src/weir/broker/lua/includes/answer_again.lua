-- The answer to a named call that already ran, in full: messages that were put in are duplicates of themselves, and
-- what was turned away must queue.
local function answer_again(ids, letters, firsts)
  local again, originals, at = {}, {}, 1
  for i, id in ipairs(ids) do
    local letter = string.sub(letters, i, i)
    if letter == 'd' or letter == 'k' then
      again[i], originals[#originals + 1] = letter, string.sub(firsts, at, at + 15)
      at = at + 16
    elseif letter == 'a' then
      again[i], originals[#originals + 1] = 'd', id
    else
      again[i] = 'g'
    end
  end
  return table.concat(again) .. table.concat(originals)
end
