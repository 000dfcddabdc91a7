package miss

import (
	"encoding/hex"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"rutter/agent/internal/nlmsg"
	"rutter/log"
)

// message makes a message of the kernel's.
func message(typ, flags uint16, family byte, link int32, state uint16, attrs ...[]byte) []byte {
	b := make([]byte, sizeofNlMsghdr+sizeofNdMsg)
	for _, a := range attrs {
		b = append(b, a...)
	}
	native.PutUint32(b, uint32(len(b)))
	native.PutUint16(b[4:], typ)
	native.PutUint16(b[6:], flags)
	b[16] = family
	native.PutUint32(b[20:], uint32(link))
	native.PutUint16(b[24:], state)
	return b
}

func attr(typ uint16, value []byte) []byte {
	b := native.AppendUint16(nil, uint16(nlmsg.AttrHeaderSize+len(value)))
	b = append(native.AppendUint16(b, typ), value...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

var (
	ip4 = netip.MustParseAddr("192.168.5.2")
	ip6 = netip.MustParseAddr("fd05::2")
	mac = log.MAC{2, 0, 0, 0, 0, 9}
)

func TestParse(t *testing.T) {
	a := message(unix.RTM_GETNEIGH, unix.NLM_F_REQUEST, unix.AF_INET, 7, unix.NUD_INCOMPLETE,
		attr(unix.NDA_DST, ip4.AsSlice()), attr(unix.NDA_PROBES, make([]byte, 4)))
	b := message(unix.RTM_GETNEIGH, 0, unix.AF_INET6, 8, unix.NUD_STALE,
		attr(unix.NDA_DST, ip6.AsSlice()), attr(unix.NDA_VNI, make([]byte, 4)))
	c := message(unix.RTM_GETNEIGH, 0, unix.AF_INET, 8, unix.NUD_STALE,
		attr(unix.NDA_LLADDR, mac[:]), attr(unix.NDA_VNI, make([]byte, 4)))
	tests := []struct {
		name     string
		datagram []byte
		want     []Miss
	}{
		{"neighbour", a, []Miss{{Kind: Neighbour, Namespace: 4, Link: 7, IP: ip4}}},
		{"proxy", b, []Miss{{Kind: Proxy, Namespace: 4, Link: 8, IP: ip6}}},
		{"forward", c, []Miss{{Kind: Forward, Namespace: 4, Link: 8, MAC: mac}}},
		{"several", slices.Concat(a, b, c), []Miss{
			{Kind: Neighbour, Namespace: 4, Link: 7, IP: ip4}, {Kind: Proxy, Namespace: 4, Link: 8, IP: ip6}, {Kind: Forward, Namespace: 4, Link: 8, MAC: mac},
		}},
		{"another notification", message(unix.RTM_NEWNEIGH, 0, unix.AF_INET, 7, unix.NUD_REACHABLE, attr(unix.NDA_DST, ip4.AsSlice())), nil},
		{"no address", message(unix.RTM_GETNEIGH, unix.NLM_F_REQUEST, unix.AF_INET, 7, unix.NUD_INCOMPLETE), nil},
		{"cut", a[:20], nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := parse(nil, test.datagram, 4); !slices.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestUnanswered(t *testing.T) {
	waits := message(unix.RTM_NEWNEIGH, 0, unix.AF_INET, 7, unix.NUD_INCOMPLETE, attr(unix.NDA_DST, ip4.AsSlice()))
	known := message(unix.RTM_NEWNEIGH, 0, unix.AF_INET, 7, unix.NUD_PERMANENT, attr(unix.NDA_DST, ip4.AsSlice()), attr(unix.NDA_LLADDR, mac[:]))
	done := message(unix.NLMSG_DONE, 0, 0, 0, 0)
	got, end, err := unanswered(nil, slices.Concat(known, waits, done))
	if want := []Miss{{Kind: Neighbour, Namespace: OwnNamespace, Link: 7, IP: ip4}}; !slices.Equal(got, want) || !end || err != nil {
		t.Errorf("got %v, %v, %v, want %v at the end", got, end, err, want)
	}
	refused := message(unix.NLMSG_ERROR, 0, 0, 0, 0)
	errno := -int32(unix.EPERM)
	native.PutUint32(refused[sizeofNlMsghdr:], uint32(errno))
	if _, _, err := unanswered(nil, refused); err != unix.EPERM {
		t.Errorf("refused: got %v, want %v", err, unix.EPERM)
	}
}

// FuzzParse: for any input, parsing ends, and its results are complete.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"", "10000000", "ffffffff1e00"} {
		b, err := hex.DecodeString(seed)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add(message(unix.RTM_GETNEIGH, unix.NLM_F_REQUEST, unix.AF_INET, 7, unix.NUD_INCOMPLETE, attr(unix.NDA_DST, ip4.AsSlice())))
	f.Add(message(unix.RTM_GETNEIGH, 0, unix.AF_INET, 8, unix.NUD_STALE, attr(unix.NDA_LLADDR, mac[:])))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, m := range parse(nil, b, OwnNamespace) {
			if m.Kind == Forward && m.MAC.IsZero() || m.Kind != Forward && !m.IP.IsValid() {
				t.Errorf("%v asks for nothing", m)
			}
		}
		_, _, _ = unanswered(nil, b)
	})
}
