package raftstore

import "rutter/log"

// timeSetBack tells the window that the log's time was set to an earlier one.
func (*window) timeSetBack(log.Time) {}
