package feedserver

import "testing"

// These errors leave the server: the first in the last frame of a stream, the other in
// answers about VMMs. What they say does not follow the name of the package.
func TestTextsThatLeaveTheServer(t *testing.T) {
	for err, want := range map[error]string{
		errWithheld:     "api: a frame that does not concern the subscriber was not sent",
		errRequestsWait: "api: too many requests wait for the compute node's connection",
	} {
		if err.Error() != want {
			t.Errorf("got %q, want %q", err, want)
		}
	}
}
