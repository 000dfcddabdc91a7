package snoopcmd

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"rutter/api/triton/changefeed/listen"
)

// Hosts are given as changefeedsnoop takes them, with a port, or as URLs.
func TestSnoopServers(t *testing.T) {
	got, err := snoopServers([]string{"napi.dc1", "10.0.0.1:7420", "https://10.0.0.2:7420", "fd00::1"}, 80, "http")
	want := []string{"http://napi.dc1:80", "http://10.0.0.1:7420", "https://10.0.0.2:7420", "http://[fd00::1]:80"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

// A line is what changefeedsnoop prints: bunyan's record with the item whole.
func TestSnoopLine(t *testing.T) {
	var out bytes.Buffer
	s := snooper{out: &out, host: "h", pid: 7}
	if err := s.item(listen.Item{Text: json.RawMessage(`{"changedResourceId":"a","seq":3}`)}); err != nil {
		t.Fatal(err)
	}
	const want = `{"name":"changefeedsnoop","hostname":"h","pid":7,"level":30,"changeItem":{"changedResourceId":"a","seq":3},"msg":"changeItem","time":"`
	if !strings.HasPrefix(out.String(), want) || !strings.HasSuffix(out.String(), "\"v\":0}\n") {
		t.Errorf("got  %s\nwant %s…", out.String(), want)
	}
}
