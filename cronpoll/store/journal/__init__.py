"""The journal: a scheduler's record in a directory, append-only and checksummed.

Use

    journal = Journal("/var/lib/cronpoll")
    book, findings, position = await journal.open(now)       # takes the lock, repairs a torn end
    position = await journal.append(events, position)        # durable when it returns
    if journal.wants_checkpoint(busy=False):
        _, position = await journal.checkpoint(book, now, position)
    await journal.close()

    reader = JournalReader("/var/lib/cronpoll")              # beside it, after it, on a copy
    state = reader.state()
    for event in reader.history(since): ...
    for written in reader.follow(state.position): ...

What every call promises is said in `cronpoll.store.api`.

Files

    lock                    exclusive lock, with the pid of its holder
    0000000007.journal      the current segment: highest number. Snapshot, then everything since.
    0000000006.journal ...  earlier segments: the history, kept for the retention time
    0000000008.journal.tmp  a segment in the making; removed at the next start if the process died
                            over it
    aside/                  bytes that were cut off or could not be understood; never read again by
                            the program
    control, control.sock   the daemon's: where it can be reached
    last-good.toml          the daemon's: the registry file that was accepted last

Format

A segment is a head line, a snapshot, and one frame per batch: lines of JSON that people can read,
under a line with kind, number, length and checksum (`codec` has it byte by byte). The state is the
snapshot with the events behind it folded in, in order. A position is a segment's number and the
byte at which a frame ends.

What is written when

Append: one write and one fsync per batch. What `append` has returned for is durable.

Compaction: the next segment is written under a temporary name with a snapshot of the present state,
fsynced, renamed, and the directory fsynced. Before the rename the old segment is current and
complete, after it the new one is; there is no moment with neither. The old segment becomes history
as it is. Nothing is rewritten, so nothing can be forgotten, and the pause is that of writing a
snapshot. It is due when a segment has grown by 16 MiB or by twice its snapshot, whichever is more,
and after a failure.

Retention: with each compaction, segments are removed that lie wholly before the retention time, or
beyond the retained size. What guards against a second start is in the snapshot and stays.

What can go wrong

Torn end: a crash while appending leaves the beginning of a frame, power loss also zeros. Nothing
intact stands behind it. The next open keeps those bytes in `aside/`, cuts them off, and names the
tasks that they speak of.

Damage: wrong bytes with an intact frame behind them. Nothing may be guessed: `open` refuses and
changes nothing. `repair`, on demand only, writes the segment anew from its intact frames and keeps
the damaged file in `aside/`.

A record with intact bytes that cannot be: it is set aside, its task begins anew, the others go on.

A write fails (disk full): the file is cut back to the last whole frame and the caller may try
again. An fsync fails: nobody knows what the disk holds, and asking again would be answered with a
lie (the kernel reports the error once and drops the pages). The segment is cut back, so that no
later process builds on those bytes, and it is *suspect*: nothing more is appended to it, and the
way on is a new segment from the state in memory. The same holds when a segment could not be cut
back, when a rename has failed (it may have happened all the same), and when the name of the new
segment could not be made durable. A suspect segment's number is never used again.

Rooms: `codec` (bytes), `disk` (system calls), `writer` (`Journal`), `reading` (`JournalReader`),
`repair`.
"""
