package localhttp

import (
	"errors"
	"fmt"
	"net/http"
	"os/user"
	"slices"
	"strconv"
	"strings"
)

// AllUsers is the text of Users that allows each client, also of another machine.
const AllUsers = "all"

// Users are the users of this machine who may ask for something. The zero value allows
// root and the user of this process, who are always allowed.
type Users struct {
	all bool
	ids []uint32
}

// ErrUsers: a text does not name users.
var ErrUsers = errors.New("want names or numbers of users, separated by commas, as in root,1001, or all")

// ParseUsers reads the names and numbers of users, separated by commas; "" names none
// besides those that are always allowed. Errors: ErrUsers.
func ParseUsers(text string) (u Users, err error) {
	if text == AllUsers {
		return Users{all: true}, nil
	}
	for name := range strings.SplitSeq(text, ",") {
		if name = strings.TrimSpace(name); name == "" || name == "root" { // root also without a file of users
			continue
		}
		number := name
		if found, err := user.Lookup(name); err == nil {
			number = found.Uid
		}
		id, err := strconv.ParseUint(number, 10, 32)
		if err != nil {
			return u, fmt.Errorf("%w: this machine has no user %q", ErrUsers, name)
		}
		u.ids = append(u.ids, uint32(id))
	}
	return u, nil
}

// Allow reports whether the client of a request is one of the users. The error says why
// the client is unknown; it is nil for a known client.
func (u Users) Allow(r *http.Request) (bool, error) {
	if u.all {
		return true, nil
	}
	peer, err := PeerOf(r)
	if err != nil {
		return false, err
	}
	return peer.Privileged() || slices.Contains(u.ids, peer.UID), nil
}
