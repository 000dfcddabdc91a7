// Package moment reads the places of a log that people and programs name: a seq, a time in
// one of several forms, or how long ago. Commands and servers read them alike.
//
// It has no clock: the caller gives the present time and the time zone of "local". It
// knows time zones, which package log may not. All that is here may be called concurrently.
package moment

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"rutter/log"
)

// Moment is a place of a log: an entry, or a time.
type Moment struct {
	Seq   log.Seq // if IsSeq; 0 is before the first entry
	IsSeq bool
	Time  log.Time // else
	// Assumed: the text had no zone, and UTC was assumed. People should be told.
	Assumed bool
}

// String returns m as servers of every version read it: a seq, or a time in RFC 3339 in
// UTC with nanoseconds.
func (m Moment) String() string {
	if m.IsSeq {
		return m.Seq.String()
	}
	return m.Time.Std().Format(time.RFC3339Nano)
}

// Forms names the forms that Parse reads, for help and errors.
const Forms = "a seq as in 1042 or #1042, a time as in 2026-11-22T01:20:30Z, \"2026-11-22 01:20\", 2026-11-22 or 01:20:30 (UTC unless a zone follows: Z, +01:00 or local), or how long ago as in 5m, 90m ago or 7d"

// MaxText bounds a text in bytes.
const MaxText = 100

// MaxAgo bounds how long ago a moment may lie.
const MaxAgo = 200 * 365 * 24 * time.Hour

// Parse reads a moment. A number is always a seq. Times without a zone are in UTC, as all
// times that the program prints; a zone may follow: Z, +01:00, or local. A time without a
// date is of today in its zone, and refused if it is still to come. A time that a clock in
// local shows twice, or not at all, is refused. local may be nil: then "local" is refused.
func Parse(text string, now time.Time, local *time.Location) (Moment, error) {
	bad := func(why error) (Moment, error) {
		return Moment{}, fmt.Errorf("%q: %w; want %s", text[:min(len(text), MaxText)], why, Forms)
	}
	if len(text) > MaxText {
		return bad(fmt.Errorf("%d bytes, over %d", len(text), MaxText))
	}
	rest := strings.TrimSpace(text)
	if number := strings.TrimPrefix(rest, "#"); number != "" && strings.Trim(number, "0123456789") == "" {
		n, err := strconv.ParseUint(number, 10, 64)
		if err != nil {
			return bad(errHigh)
		}
		return Moment{Seq: log.Seq(n), IsSeq: true}, nil
	}
	if ago, ok := duration(strings.TrimSpace(strings.TrimSuffix(rest, "ago"))); ok {
		return Moment{Time: max(log.TimeOf(now.Add(-ago)), 1)}, nil
	}
	m, err := parseTime(rest, now, local)
	if err != nil {
		return bad(err)
	}
	return m, nil
}

// duration reads how long ago: the units of time.ParseDuration, and whole days d and weeks w.
func duration(text string) (time.Duration, bool) {
	for unit, of := range map[string]time.Duration{"d": 24 * time.Hour, "w": 7 * 24 * time.Hour} {
		if number, is := strings.CutSuffix(text, unit); is {
			n, err := strconv.ParseUint(number, 10, 32)
			return time.Duration(n) * of, err == nil && n > 0 && n <= uint64(MaxAgo/of)
		}
	}
	d, err := time.ParseDuration(text)
	return d, err == nil && d > 0 && d <= MaxAgo && text[0] >= '0' && text[0] <= '9'
}

// Layouts of dates and of times of the day. Seconds may have a fraction.
var (
	dates  = []string{"2006-01-02"}
	clocks = []string{"15:04:05", "15:04"}
)

var (
	errHigh  = errors.New("no seq is so high")
	errForm  = errors.New("it is none of the forms")
	errLocal = errors.New("a server has no local time: name the zone, as in +01:00")
	errTwice = errors.New("clocks showed this time twice that day: name the zone, as in +01:00")
	errNever = errors.New("clocks did not show this time that day: name the zone, as in +01:00")
	errYet   = errors.New("that is still to come today: name the day")
	errRange = errors.New("years from 1970 to 2261 are kept")
)

// parseTime reads a date, a time of the day, or both, with or without a zone.
func parseTime(text string, now time.Time, local *time.Location) (Moment, error) {
	text, zone, named, err := zoneOf(text, local)
	if err != nil {
		return Moment{}, err
	}
	day, clock, both := strings.Cut(strings.Replace(text, "T", " ", 1), " ")
	clock = strings.TrimSpace(clock)
	if !both && strings.Contains(day, ":") {
		day, clock = "", day
	}
	date, dated := parseAny(dates, day, zone)
	at, timed := parseAny(clocks, clock, zone)
	if day != "" && !dated || (clock != "" || both) && !timed || day == "" && clock == "" {
		return Moment{}, errForm
	}
	if !dated {
		date = now.In(zone)
	}
	t := time.Date(date.Year(), date.Month(), date.Day(), at.Hour(), at.Minute(), at.Second(), at.Nanosecond(), zone)
	if t.Hour() != at.Hour() || t.Minute() != at.Minute() {
		return Moment{}, errNever
	}
	for _, shift := range []time.Duration{-time.Hour, -30 * time.Minute, 30 * time.Minute, time.Hour} {
		if other := t.Add(shift); other.Day() == t.Day() && other.Hour() == t.Hour() && other.Minute() == t.Minute() {
			return Moment{}, errTwice
		}
	}
	switch {
	case !dated && t.After(now):
		return Moment{}, errYet
	case t.Unix() < 0 || t.Year() > 2261:
		return Moment{}, errRange
	}
	return Moment{Time: max(log.TimeOf(t), 1), Assumed: !named}, nil
}

// zoneOf cuts the zone from the end of a text; UTC if there is none.
func zoneOf(text string, local *time.Location) (rest string, zone *time.Location, named bool, err error) {
	if rest, is := strings.CutSuffix(text, "local"); is {
		if local == nil {
			return "", nil, false, errLocal
		}
		return strings.TrimSpace(rest), local, true, nil
	}
	for _, utc := range []string{"Z", "z", "UTC"} {
		if rest, is := strings.CutSuffix(text, utc); is {
			return strings.TrimSpace(rest), time.UTC, true, nil
		}
	}
	if colon := strings.IndexByte(text, ':'); colon >= 0 { // a sign before is of a date
		if at := strings.LastIndexAny(text, "+-"); at > colon {
			t, err := time.Parse("-07:00", text[at:])
			if err != nil {
				if t, err = time.Parse("-0700", text[at:]); err != nil {
					return "", nil, false, errForm
				}
			}
			return strings.TrimSpace(text[:at]), t.Location(), true, nil
		}
	}
	return text, time.UTC, false, nil
}

func parseAny(layouts []string, text string, zone *time.Location) (time.Time, bool) {
	for _, layout := range layouts {
		if t, err := time.ParseInLocation(layout, text, zone); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}
