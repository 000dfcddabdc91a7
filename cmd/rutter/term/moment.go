package term

import (
	"context"
	"fmt"
	"time"

	"rutter/log/moment"
)

// Moment reads a place of the log that the user named, by this machine's clock. If the
// text has no zone, what it means is printed on standard error.
func Moment(ctx context.Context, text string) (moment.Moment, error) {
	m, err := moment.Parse(text, time.Now(), time.Local)
	if err != nil {
		return m, UsageError{err}
	}
	if m.Assumed {
		noticesOf(ctx).say(fmt.Sprintf("%s is %s", text, m))
	}
	return m, nil
}

// MomentText is Moment in the form that servers read; "" for "".
func MomentText(ctx context.Context, text string) (string, error) {
	if text == "" {
		return "", nil
	}
	m, err := Moment(ctx, text)
	return m.String(), err
}
