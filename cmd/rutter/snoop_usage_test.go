package main

import (
	"strings"
	"testing"
)

func TestSnoopUsage(t *testing.T) {
	for args, want := range map[string]string{
		"changefeed snoop":                                  "-r and -s are needed",
		"changefeed snoop -r nic":                           "-r and -s are needed",
		"changefeed snoop -r nic -s ip -p 0 -h a":           "want a port",
		"changefeed snoop -r nic -s ip extra":               "takes no arguments",
		"changefeed snoop -r nic -s ip -h ftp://10.0.0.1:1": "want a base URL",
	} {
		if code, _, errs := rutter(t, strings.Fields(args)...); code == 0 || !strings.Contains(errs, want) {
			t.Errorf("%s: exit code %d, %q, want %q", args, code, errs, want)
		}
	}
}
