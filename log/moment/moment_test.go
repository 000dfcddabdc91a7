package moment_test

import (
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"rutter/log"
	"rutter/log/moment"
)

// now is when the tests run.
var now = time.Date(2026, 11, 23, 6, 5, 35, 0, time.UTC)

func berlin(t testing.TB) *time.Location {
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	return zone
}

// Each form, and what it means. Where it is refused, want is a part of the reason.
func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"5": "5", "#5": "5", "0": "0", "#1042": "1042", "007": "7", " 12 ": "12",
		"18446744073709551615": "18446744073709551615",
		"20261122":             "20261122", // a number is a seq, never a date

		"2026-11-22T01:20:30Z":           "2026-11-22T01:20:30Z",
		"2026-11-22T01:20:30.123456789Z": "2026-11-22T01:20:30.123456789Z",
		"2026-11-22T01:20:30+01:00":      "2026-11-22T00:20:30Z",
		"2026-11-22T01:20:30.5-05:30":    "2026-11-22T06:50:30.5Z",
		"2026-11-22 01:20":               "2026-11-22T01:20:00Z (assumed)",
		"2026-11-22 01:20:30":            "2026-11-22T01:20:30Z (assumed)",
		"2026-11-22T01:20":               "2026-11-22T01:20:00Z (assumed)",
		"2026-11-22 01:20Z":              "2026-11-22T01:20:00Z",
		"2026-11-22 01:20 +0100":         "2026-11-22T00:20:00Z",
		"2026-11-22 01:20 local":         "2026-11-22T00:20:00Z",
		"2026-07-22 01:20 local":         "2026-07-21T23:20:00Z",
		"2026-11-22":                     "2026-11-22T00:00:00Z (assumed)",
		"2026-11-22 local":               "2026-11-21T23:00:00Z",
		"01:20:30":                       "2026-11-23T01:20:30Z (assumed)",
		"01:20":                          "2026-11-23T01:20:00Z (assumed)",
		"01:20 UTC":                      "2026-11-23T01:20:00Z",
		"01:20:30.25":                    "2026-11-23T01:20:30.25Z (assumed)",
		"01:20 local":                    "2026-11-23T00:20:00Z",
		"06:05:35":                       "2026-11-23T06:05:35Z (assumed)",
		"23:50 -11:00":                   "2026-11-23T10:50:00Z: that is still to come",
		"18:00 -12:00":                   "2026-11-23T06:00:00Z",
		"1970-01-01":                     "1970-01-01T00:00:00.000000001Z (assumed)",
		"5m":                             "2026-11-23T06:00:35Z",
		"90m ago":                        "2026-11-23T04:35:35Z",
		"1h30m":                          "2026-11-23T04:35:35Z",
		"7d":                             "2026-11-16T06:05:35Z",
		"7000w":                          "1970-01-01T00:00:00.000000001Z",
		"2w ago":                         "2026-11-09T06:05:35Z",

		"06:05:36":                     "still to come",
		"23:50":                        "still to come",
		"2026-10-25 02:30 local":       "showed this time twice",
		"2026-03-29 02:30 local":       "did not show this time",
		"2026-10-25 02:30 +02:00":      "2026-10-25T00:30:00Z",
		"18446744073709551616":         "no seq is so high",
		"99999999999999999999d":        "none of the forms",
		"1969-12-31":                   "1970 to 2261",
		"2262-01-01":                   "1970 to 2261",
		"2026-13-01":                   "none of the forms",
		"2026-02-30":                   "none of the forms",
		"24:00":                        "none of the forms",
		"":                             "none of the forms",
		"ago":                          "none of the forms",
		"-5m":                          "none of the forms",
		"+5m":                          "none of the forms",
		"5m later":                     "none of the forms",
		"#":                            "none of the forms",
		"#5m":                          "none of the forms",
		"yesterday":                    "none of the forms",
		"2026-11-22 ":                  "2026-11-22T00:00:00Z (assumed)",
		"2026-11-22T":                  "none of the forms",
		"local":                        "none of the forms",
		"Z":                            "none of the forms",
		"01:20 +25:00":                 "none of the forms",
		strings.Repeat("1", 200):       "200 bytes, over 100",
		"2026-11-22 01:20 local local": "none of the forms",
	} {
		m, err := moment.Parse(text, now, berlin(t))
		got := m.String()
		if m.Assumed {
			got += " (assumed)"
		}
		if err != nil {
			got = err.Error()
			if want, ok := strings.CutPrefix(want, "2026-11-23T10:50:00Z: "); ok && strings.Contains(got, want) {
				continue
			}
			if strings.Contains(got, want) && strings.Contains(got, "want a seq") {
				continue
			}
		}
		if got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// A server does not know the caller's zone.
func TestNoLocalTime(t *testing.T) {
	if m, err := moment.Parse("01:20 local", now, nil); err == nil || !strings.Contains(err.Error(), "no local time") {
		t.Errorf("got %s, %v", m, err)
	}
}

// What is accepted says the same when it is printed and read again.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"5", "#7", "01:20", "2026-11-22 01:20 +0100", "90m ago", "2026-11-22T01:20:30.5Z", "3w", "01:20 local"} {
		f.Add(text)
	}
	zone := berlin(f)
	f.Fuzz(func(t *testing.T, text string) {
		m, err := moment.Parse(text, now, zone)
		if err != nil {
			return
		}
		again, err := moment.Parse(m.String(), now, nil)
		if err != nil || again.IsSeq != m.IsSeq || again.Seq != m.Seq || again.Time != m.Time {
			t.Fatalf("%q is %s, and that is %v, %v", text, m, again, err)
		}
		if !m.IsSeq {
			if at, err := log.ParseTime(m.String()); err != nil || at != m.Time {
				t.Fatalf("%q is %s, which servers of before read as %v, %v", text, m, at, err)
			}
		}
	})
}
