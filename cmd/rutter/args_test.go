package main

import (
	"strings"
	"testing"
)

func TestFlagsFirst(t *testing.T) {
	commands := newApp(nil, nil).Commands
	for _, test := range []struct{ args, want string }{
		{"nic get 90:b8:d0:00:00:01 -o json", "nic get -o json -- 90:b8:d0:00:00:01"},
		{"nic update M ip=1 --if-match=3 -s a", "nic update --if-match=3 -s a -- M ip=1"},
		{"lookup vl3 1 10.0.0.1 --svp x:1", "lookup vl3 --svp x:1 -- 1 10.0.0.1"},
		{"log tail --follow -n 5", "log tail --follow -n 5"},
		{"tag create -f - ", "tag create -f -"},
		{"tag create -- -o", "tag create -- -o"},
		{"agent status -o json", "agent status -o json"},
		{"agent --cn x", "agent --cn x"},
		{"--help", "--help"},
		{"nothing here", "nothing here"},
	} {
		if got := strings.Join(flagsFirst(commands, strings.Fields(test.args)), " "); got != test.want {
			t.Errorf("%q: got %q, want %q", test.args, got, test.want)
		}
	}
}
