package vmdoc_test

import (
	"testing"

	"rutter/agent/vminfo/vmdoc"
	"rutter/log"
)

func TestTapName(t *testing.T) {
	if got := vmdoc.TapName(log.MAC{0x90, 0xb8, 0xd0, 0, 0, 0x1f}); got != "rt90b8d000001f" || len(got) > 15 {
		t.Errorf("got %s", got)
	}
}
