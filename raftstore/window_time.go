package raftstore

import "rutter/log"

// timeSetBack tells the window that the log's time was set to an earlier one: what it
// had forgotten by the time that was wrong is not in the way of ids that are made from
// now on.
func (w *window) timeSetBack(to log.Time) {
	if ms, _ := w.trimmed.UnixMilli(); ms*1_000_000 <= int64(to)-int64(w.age) {
		return
	}
	var line log.UUID
	for i, ms := 0, uint64(max(0, (int64(to)-int64(w.age))/1_000_000)); i < 6; i++ {
		line[i] = byte(ms >> (40 - 8*i))
	}
	w.trimmed = line
}
