-- A gate that an operation holds, as a member of `gate_times`.
local function gate_time(ident, partition, operation)
  return struct.pack('>I2I2', #ident, #operation) .. ident .. operation .. partition
end
