package raftstore

func crashChild() bool { return false }
