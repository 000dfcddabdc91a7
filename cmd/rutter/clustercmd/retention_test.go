package clustercmd

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
	"rutter/log"
)

func TestParseRetention(t *testing.T) {
	for text, want := range map[string]time.Duration{"30d": 720 * time.Hour, "168h": 168 * time.Hour, "90m": 90 * time.Minute, "0s": 0} {
		if got, err := parseAge(text); err != nil || got != want {
			t.Errorf("age %q: got %v, %v, want %v", text, got, err, want)
		}
	}
	for text, want := range map[string]uint64{"1": 1, "16GiB": 16 << 30, "500 MiB": 500 << 20, "3KiB": 3 << 10, "1TiB": 1 << 40} {
		if got, err := output.ParseSize(text); err != nil || got != want {
			t.Errorf("size %q: got %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "d", "-1h", "x", "1e3d", "99999999d"} {
		if _, err := parseAge(text); !errors.As(err, new(term.UsageError)) {
			t.Errorf("age %q: got %v, want a usage error", text, err)
		}
	}
	for _, text := range []string{"", "0", "GiB", "-1", "99999999TiB", "1GB"} {
		if _, err := output.ParseSize(text); !errors.As(err, new(term.UsageError)) {
			t.Errorf("size %q: got %v, want a usage error", text, err)
		}
	}
}

func TestWriteRetention(t *testing.T) {
	var b bytes.Buffer
	writeRetention(&b, &retentionPlan{Age: "168h0m0s", Events: 10, Bytes: 16 << 30, Head: 100, Floor: 5, Oldest: log.Time(1e18), Used: 1 << 20, Next: 50, NextTime: log.Time(2e18), Goes: 45}, "would go")
	for _, want := range []string{"7 days or the newest 10 entries", "16.0 GiB", "seq 6 to 100, since 2001-", "1.0 MiB in use", "45 entries, up to seq 50", "would go"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}
