package vmrule

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestPrograms: each field that chooses what runs on a node is found, and others are
// not.
func TestPrograms(t *testing.T) {
	const uuid = "5595d88c-6e4d-4bda-b58e-97dd02e30007"
	for body, want := range map[string]string{
		`{"alias":"a","quota":1,"customer_metadata":{"user-script":"#!/bin/sh"},"nics":[]}`: "",
		`{"zonename":"` + uuid + `","disks":[{"size":1,"image_uuid":"x"}]}`:                 "",
		`{"init":["/bin/sh"],"root":"/"}`:                                                   "init root",
		`{"init":null}`:                                                                     "init",
		`{"qemu_extra_opts":["-cdrom","/dev/sda"]}`:                                         "qemu_extra_opts",
		`{"disks":[{"size":1},{"path":"/dev/sda"}]}`:                                        "disks",
		`{"add_disks":[{"path":"/dev/sda"}],"update_disks":1}`:                              "add_disks update_disks",
		`{"zonename":"global"}`:                                                             "zonename",
		`{"kernel":"/etc/shadow","initrd":"/etc/shadow","append":"x"}`:                      "append initrd kernel",
		`{"accel":"tcg","boot":"order=nc"}`:                                                 "accel",
		`{"nics":[{"mac":"a"}],"add_nics":[{"attach":{}}]}`:                                 "add_nics",
		`{"nics":[{"mac":"a","attach":{"kind":"tap","device":"eth1"}}],"update_nics":2}`:    "nics",
		`{"filesystems":[{"source":"/"}]}`:                                                  "filesystems",
	} {
		var fields map[string]json.RawMessage
		if err := json.Unmarshal([]byte(body), &fields); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(Programs(uuid, fields), " "); got != want {
			t.Errorf("%s: %q, want %q", body, got, want)
		}
	}
}
