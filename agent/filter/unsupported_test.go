package filter

import (
	"context"
	"errors"
	"regexp"
	"testing"

	"rutter/cmd/rutter/netlab"
)

// A kernel that lacks a part is told from one that refuses for another reason, and the part is
// named. The machine's own kernel has all of them; integration/guest runs this on one that
// does not.
func TestOpenNamesWhatTheKernelLacks(t *testing.T) {
	if !netlab.Inside() {
		t.Skip(netlab.ErrForbidden.Error())
	}
	err := namespace(t, "node").Do(func() error {
		k, err := Open(context.Background())
		if err == nil {
			err = k.Close()
		}
		return err
	})
	if err == nil {
		t.Skip("this kernel has all that the rules need")
	}
	t.Log(err)
	if !errors.Is(err, ErrUnsupported) || !regexp.MustCompile(`family (bridge|netdev|inet|arp)`).MatchString(err.Error()) {
		t.Errorf("Open: %v; want ErrUnsupported that names the family", err)
	}
}
