-- Select the pending occurrences that a session may claim: highest level first, then earliest due, then oldest, within
-- functions, concurrency and overlap, of those due by `til`. With `oldest` classes are ignored, and all levels of a
-- priority count as one. It also removes wrong entries from an index (see occurrences.lua). Lines are merged by their
-- heads; a line is read only when its head is next. After `limit`, up to `reserve` more are selected to wait on their
-- node for a free slot: first attempts, or those after failures, of jobs that are retried after a crash, without a limit
-- or a turn. They do not overtake an occurrence that cannot be reserved.
-- needs: starting runs_left

local PAGE = 64
local LARGEST_COUNT = 2147483647

local function comes_before(one, other)
  return one.due < other.due or (one.due == other.due and one.id < other.id)
end

local function choose(session, limit, left_out, til, reserve, oldest)
  local chosen, jobs, most = {}, {}, limit + (reserve or 0)

  local function job_of(job)
    local found = jobs[job]
    if not found then
      found = read(job_key(job), 'function', 'overlap', 'concurrency', 'on_crash')
      if left_out[job] or call('SISMEMBER', SPACE .. 'functions:' .. session, found['function']) == 0 then
        found.runs_left = 0
      else
        found.runs_left = runs_left_of(job, found.concurrency)
      end
      jobs[job] = found
    end
    return found
  end

  -- Of the occurrences subject to overlap: the one whose turn it is, if none of them runs.
  local function turn_of(job)
    local busy = of_job(job, 'busy')
    for _, id in ipairs(call('SMEMBERS', busy)) do
      if not drop_unless_running(id, busy, 'SREM') then
        return nil
      end
    end
    return call('ZRANGE', of_job(job, 'serial'), 0, 0)[1]
  end

  -- Move on to the next due entry of a line; false at its end.
  local function advance(line)
    if line.only then
      return false
    end
    if line.at >= #line.page then
      local wanted = math.min(PAGE, most - #chosen, line.job.runs_left)
      if line.last or wanted <= 0 then
        return false
      end
      line.page = call('ZRANGE', line.key, line.seen, line.seen + wanted - 1, 'WITHSCORES')
      line.seen, line.at, line.last = line.seen + #line.page / 2, 0, #line.page < 2 * wanted
      if #line.page == 0 then
        return false
      end
    end
    line.id, line.due = line.page[line.at + 1], tonumber(line.page[line.at + 2])
    line.at = line.at + 2
    return line.due <= til
  end

  -- Read the line of a head; nil if nothing of it can be claimed.
  local function open_line(level, head)
    local name = string.sub(head, 16)
    local number, kind = string.match(name, '^(%d+):(%a)$')
    local job = job_of(number)
    if job.runs_left <= 0 then
      return nil
    end
    local line = { job = job, level = level, key = line_key(level, name), name = name, page = {}, at = 0, seen = 0 }
    if kind == 's' and job.overlap ~= 'allow' then
      line.id, line.only = turn_of(number), true
      local at = line.id and call('ZSCORE', line.key, line.id)
      line.due = at and tonumber(at)
      if line.id and not at then
        drop_unless_active(line.id, of_job(number, 'serial'))
      end
      return line.due and line.due <= til and line or nil
    end
    return advance(line) and line or nil
  end

  -- Lines in use, the next last.
  local function put_in_order(open, line)
    local at = #open + 1
    while at > 1 and comes_before(open[at - 1], line) do
      at = at - 1
    end
    table.insert(open, at, line)
  end

  -- An entry that is not late, and valid, so that it can be started.
  local function claimable(row)
    local whole_numbers = tonumber(row.attempt or 0) < LARGEST_COUNT and tonumber(row.due) and tonumber(row.level)
    return whole_numbers and tonumber(row.created) and row.job and row.key and row.origin and row.payload and not is_late(row)
  end

  -- The heads of the lines of a level, one after the other: `head` is the next; nil: none is due.
  local function heads_of(level)
    local heads = { level = level, page = {}, at = 0, seen = 0 }

    function heads.advance()
      if heads.at >= #heads.page and not heads.last then
        heads.page = call('ZRANGEBYSCORE', level_key(level), '-inf', whole(til), 'WITHSCORES', 'LIMIT', heads.seen, PAGE)
        heads.seen, heads.at, heads.last = heads.seen + #heads.page / 2, 0, #heads.page < 2 * PAGE
      end
      local name = heads.page[heads.at + 1]
      heads.head = name and { id = string.sub(name, 1, 14), due = tonumber(heads.page[heads.at + 2]), name = name }
      heads.at = heads.at + 2
    end

    heads.advance()
    return heads
  end

  local function choose_at(levels)
    local open, sources = {}, {}
    for place, level in ipairs(levels) do
      sources[place] = heads_of(level)
    end

    -- The place of the next head.
    local function first_source()
      local first = sources[1]
      for place = 2, #sources do
        local head = sources[place].head
        if head and not (first.head and comes_before(first.head, head)) then
          first = sources[place]
        end
      end
      return first
    end

    local function may_be_reserved(row, job)
      local serial = SERIAL[row.origin] and job.overlap ~= 'allow'
      local begun = tonumber(row.attempt or 0) ~= tonumber(row.failures or 0)
      return not (serial or begun or job.concurrency) and job.on_crash == 'retry'
    end

    while #chosen < most do
      local line, source = open[#open], first_source()
      if source.head and not (line and comes_before(line, source.head)) then
        local opened = try(open_line, source.level, source.head.name)
        if opened then
          put_in_order(open, opened)
        end
        source.advance()
      elseif line then
        table.remove(open)
        if line.job.runs_left > 0 then
          local row = pending_row(line.id)
          if row.state ~= 'pending' or row.level ~= line.level or try(line_of, row) ~= line.name then
            change_line('ZREM', line.level, line.name, line.id)
            drop_unless_active(line.id, of_job(string.match(line.name, '^%d+'), 'serial'))
          elseif not left_out[line.id] and try(claimable, row) then
            if #chosen >= limit and not may_be_reserved(row, line.job) then
              most = #chosen
              return
            end
            chosen[#chosen + 1] = row
            line.job.runs_left = line.job.runs_left - 1
          end
          if advance(line) then
            put_in_order(open, line)
          end
        end
      else
        return
      end
    end
  end

  local levels, at = call('ZREVRANGE', LEVELS, 0, -1), 1
  while levels[at] and #chosen < most do
    local together = { levels[at] }
    while oldest and levels[at + 1] and priority_of(levels[at + 1]) == priority_of(levels[at]) do
      at = at + 1
      together[#together + 1] = levels[at]
    end
    choose_at(together)
    at = at + 1
  end
  return chosen
end
