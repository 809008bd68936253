-- Select the pending occurrences that a session may claim, of those due by `due_by`: highest level first, then earliest
-- due, then oldest. The session must have the job's function, and concurrency and overlap must allow one more run.
--
-- A line is a queue of one job at one level (see indexes.lua). Lines are merged by their heads; a line is read only when its
-- head is next. With `ignore_class` all levels of a priority count as one. Wrong entries of an index are removed on the way
-- (see occurrences.lua).
--
-- After `limit`, up to `reserve` more are selected: their node holds them until a slot is free. They must be of jobs that
-- are retried after a crash and that have no concurrency limit, not subject to overlap, and never cut off by a crash. They
-- do not overtake an occurrence that cannot be reserved.
-- needs: starting runs_left

local PAGE = 64
local LARGEST_COUNT = 2147483647

local function comes_before(row, other_row)
  return row.due < other_row.due or (row.due == other_row.due and row.id < other_row.id)
end

local function select_claims(session, limit, left_out, due_by, reserve, ignore_class)
  local selected, jobs, most_selected = {}, {}, limit + (reserve or 0)

  local function job_of(job)
    local row = jobs[job]
    if not row then
      row = read(job_key(job), 'function', 'overlap', 'concurrency', 'on_crash')
      if left_out[job] or call('SISMEMBER', SPACE .. 'functions:' .. session, row['function']) == 0 then
        row.runs_left = 0
      else
        row.runs_left = runs_left_of(job, row.concurrency)
      end
      jobs[job] = row
    end
    return row
  end

  -- Return the oldest occurrence subject to overlap; nil while one of them runs.
  local function turn_of(job)
    local busy = job_part_key(job, 'busy')
    for _, id in ipairs(call('SMEMBERS', busy)) do
      if not drop_unless_running(id, busy, 'SREM') then
        return nil
      end
    end
    return call('ZRANGE', job_part_key(job, 'serial'), 0, 0)[1]
  end

  -- Move on to the next due entry of a line; false at its end.
  local function advance(line)
    if line.only then
      return false
    end
    if line.position >= #line.page then
      local page_size = math.min(PAGE, most_selected - #selected, line.job.runs_left)
      if line.last or page_size <= 0 then
        return false
      end
      line.page = call('ZRANGE', line.key, line.seen, line.seen + page_size - 1, 'WITHSCORES')
      line.seen, line.position, line.last = line.seen + #line.page / 2, 0, #line.page < 2 * page_size
      if #line.page == 0 then
        return false
      end
    end
    line.id, line.due = line.page[line.position + 1], tonumber(line.page[line.position + 2])
    line.position = line.position + 2
    return line.due <= due_by
  end

  -- Read the line of a head; nil if nothing of it can be claimed.
  local function open_line(level, head)
    local name = string.sub(head, 16)
    local number, kind = string.match(name, '^(%d+):(%a)$')
    local job = job_of(number)
    if job.runs_left <= 0 then
      return nil
    end
    local line = { job = job, level = level, key = line_key(level, name), name = name, page = {}, position = 0, seen = 0 }
    if kind == 's' and job.overlap ~= 'allow' then
      line.id, line.only = turn_of(number), true
      local position = line.id and call('ZSCORE', line.key, line.id)
      line.due = position and tonumber(position)
      if line.id and not position then
        drop_unless_active(line.id, job_part_key(number, 'serial'))
      end
      return line.due and line.due <= due_by and line or nil
    end
    return advance(line) and line or nil
  end

  -- Keep the open lines in order: the next one to claim from is the last.
  local function insert_by_due(open_lines, line)
    local position = #open_lines + 1
    while position > 1 and comes_before(open_lines[position - 1], line) do
      position = position - 1
    end
    table.insert(open_lines, position, line)
  end

  -- Whether an entry can be started: all its fields are valid, and it is not past its expiry.
  local function is_claimable(row)
    local whole_numbers = tonumber(row.attempt or 0) < LARGEST_COUNT and tonumber(row.due) and tonumber(row.level)
    return whole_numbers and tonumber(row.created) and row.job and row.key and row.origin and row.payload and not is_late(row)
  end

  -- Iterate over the heads of the lines of a level: `head` is the current one; nil: no more are due.
  local function heads_of(level)
    local heads = { level = level, page = {}, position = 0, seen = 0 }

    function heads.advance()
      if heads.position >= #heads.page and not heads.last then
        heads.page = call('ZRANGEBYSCORE', level_key(level), '-inf', integer_text(due_by), 'WITHSCORES', 'LIMIT', heads.seen, PAGE)
        heads.seen, heads.position, heads.last = heads.seen + #heads.page / 2, 0, #heads.page < 2 * PAGE
      end
      local name = heads.page[heads.position + 1]
      heads.head = name and { id = string.sub(name, 1, 14), due = tonumber(heads.page[heads.position + 2]), name = name }
      heads.position = heads.position + 2
    end

    heads.advance()
    return heads
  end

  local function select_at_levels(levels)
    local open_lines, sources = {}, {}
    for place, level in ipairs(levels) do
      sources[place] = heads_of(level)
    end

    -- Return the level whose next head comes first.
    local function first_source()
      local next_source = sources[1]
      for place = 2, #sources do
        local head = sources[place].head
        if head and not (next_source.head and comes_before(next_source.head, head)) then
          next_source = sources[place]
        end
      end
      return next_source
    end

    local function may_be_reserved(row, job)
      local serial = SERIAL[row.origin] and job.overlap ~= 'allow'
      local has_crashed = tonumber(row.attempt or 0) ~= tonumber(row.failures or 0)
      return not (serial or has_crashed or job.concurrency) and job.on_crash == 'retry'
    end

    while #selected < most_selected do
      local line, source = open_lines[#open_lines], first_source()
      if source.head and not (line and comes_before(line, source.head)) then
        local opened_line = try(open_line, source.level, source.head.name)
        if opened_line then
          insert_by_due(open_lines, opened_line)
        end
        source.advance()
      elseif line then
        table.remove(open_lines)
        if line.job.runs_left > 0 then
          local row = pending_row(line.id)
          if row.state ~= 'pending' or row.level ~= line.level or try(line_of, row) ~= line.name then
            change_line('ZREM', line.level, line.name, line.id)
            drop_unless_active(line.id, job_part_key(string.match(line.name, '^%d+'), 'serial'))
          elseif not left_out[line.id] and try(is_claimable, row) then
            if #selected >= limit and not may_be_reserved(row, line.job) then
              most_selected = #selected
              return
            end
            selected[#selected + 1] = row
            line.job.runs_left = line.job.runs_left - 1
          end
          if advance(line) then
            insert_by_due(open_lines, line)
          end
        end
      else
        return
      end
    end
  end

  local levels, position = call('ZREVRANGE', LEVELS, 0, -1), 1
  while levels[position] and #selected < most_selected do
    local same_priority = { levels[position] }
    while ignore_class and levels[position + 1] and priority_of(levels[position + 1]) == priority_of(levels[position]) do
      position = position + 1
      same_priority[#same_priority + 1] = levels[position]
    end
    select_at_levels(same_priority)
    position = position + 1
  end
  return selected
end
