package filter

import (
	"encoding/binary"
	"time"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"rutter/agent/internal/nlmsg"
)

// message is one netlink message of nf_tables, header included. Its sequence is set when it
// is sent.
type message []byte

// newMessage begins a message: the header, and struct nfgenmsg.
func newMessage(typ, flags uint16, family byte, resource uint16) message {
	m := make(message, nlmsg.HeaderSize, 128)
	binary.NativeEndian.PutUint16(m[4:], typ)
	binary.NativeEndian.PutUint16(m[6:], unix.NLM_F_REQUEST|flags)
	m = append(m, family, unix.NFNETLINK_V0)
	return binary.BigEndian.AppendUint16(m, resource)
}

func nftMessage(typ, flags uint16, family byte) message {
	return newMessage(unix.NFNL_SUBSYS_NFTABLES<<8|typ, flags, family, 0)
}

func (m message) sequence(n uint32) { binary.NativeEndian.PutUint32(m[8:], n) }

// end completes a message: its length.
func (m message) end() message {
	binary.NativeEndian.PutUint32(m, uint32(len(m)))
	return m
}

// zeros are what follows a value up to a multiple of 4 bytes.
var zeros [4]byte

func (m message) bytes(typ uint16, value []byte) message {
	m = binary.NativeEndian.AppendUint16(m, uint16(nlmsg.AttrHeaderSize+len(value)))
	m = append(binary.NativeEndian.AppendUint16(m, typ), value...)
	return append(m, zeros[:(4-len(value)%4)%4]...)
}

func (m message) text(typ uint16, value string) message {
	m = binary.NativeEndian.AppendUint16(m, uint16(nlmsg.AttrHeaderSize+len(value)+1))
	m = append(binary.NativeEndian.AppendUint16(m, typ), value...)
	m = append(m, 0)
	return append(m, zeros[:(4-(len(value)+1)%4)%4]...)
}

func (m message) number(typ uint16, value uint32) message {
	m = binary.NativeEndian.AppendUint16(m, nlmsg.AttrHeaderSize+4)
	return binary.BigEndian.AppendUint32(binary.NativeEndian.AppendUint16(m, typ), value)
}

// nest adds an attribute that has attributes. It has at most 64 KiB.
func (m message) nest(typ uint16, content func(message) message) message {
	at := len(m)
	m = binary.NativeEndian.AppendUint16(m, 0)
	m = content(binary.NativeEndian.AppendUint16(m, typ|unix.NLA_F_NESTED))
	binary.NativeEndian.PutUint16(m[at:], uint16(len(m)-at))
	return m
}

// comment is a text in the form in which nft(8) shows it.
func comment(text string) []byte {
	return append(append([]byte{0, byte(len(text) + 1)}, text...), 0)
}

// commentOf is the text, if the user data is one comment.
func commentOf(userdata []byte) string {
	if len(userdata) < 3 || userdata[0] != 0 || int(userdata[1]) != len(userdata)-2 {
		return ""
	}
	return string(userdata[2 : len(userdata)-1])
}

// tableUserdata is NFTA_TABLE_USERDATA (linux/netfilter/nf_tables.h).
const tableUserdata = 6

func newTable(family byte) message {
	return nftMessage(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE|unix.NLM_F_EXCL, family).
		text(unix.NFTA_TABLE_NAME, tableName).bytes(tableUserdata, comment(marker)).end()
}

func delTable(family byte) message {
	return nftMessage(unix.NFT_MSG_DELTABLE, 0, family).text(unix.NFTA_TABLE_NAME, tableName).end()
}

func newSet(s setDef, id uint32) message {
	m := nftMessage(unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE|unix.NLM_F_EXCL, s.family).
		text(unix.NFTA_SET_TABLE, tableName).text(unix.NFTA_SET_NAME, s.name).
		number(unix.NFTA_SET_FLAGS, s.flags()).
		number(unix.NFTA_SET_KEY_TYPE, s.keyType).number(unix.NFTA_SET_KEY_LEN, s.keyLen).
		number(unix.NFTA_SET_ID, id)
	if s.timeout > 0 {
		milliseconds := uint64(s.timeout / time.Millisecond)
		m = m.bytes(unix.NFTA_SET_TIMEOUT, binary.BigEndian.AppendUint64(nil, milliseconds))
	}
	if s.size > 0 {
		m = m.nest(unix.NFTA_SET_DESC, func(m message) message {
			return m.number(unix.NFTA_SET_DESC_SIZE, s.size)
		})
	}
	return m.end()
}

func (s setDef) flags() uint32 {
	var flags uint32
	if s.dynamic {
		flags |= unix.NFT_SET_EVAL
	}
	if s.timeout > 0 {
		flags |= unix.NFT_SET_TIMEOUT
	}
	return flags
}

func newChain(c chainDef) message {
	m := nftMessage(unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE|unix.NLM_F_EXCL, c.family).
		text(unix.NFTA_CHAIN_TABLE, tableName).text(unix.NFTA_CHAIN_NAME, c.name)
	if c.base {
		m = m.nest(unix.NFTA_CHAIN_HOOK, func(m message) message {
			m = m.number(unix.NFTA_HOOK_HOOKNUM, c.hook).number(unix.NFTA_HOOK_PRIORITY, uint32(c.priority))
			if c.device != "" {
				m = m.text(unix.NFTA_HOOK_DEV, c.device)
			}
			return m
		})
		m = m.text(unix.NFTA_CHAIN_TYPE, "filter").number(unix.NFTA_CHAIN_POLICY, c.policy())
	}
	return m.end()
}

func (c chainDef) policy() uint32 {
	if c.drops {
		return 0 // NF_DROP
	}
	return 1 // NF_ACCEPT
}

func delChain(family byte, name string) message {
	return nftMessage(unix.NFT_MSG_DELCHAIN, 0, family).
		text(unix.NFTA_CHAIN_TABLE, tableName).text(unix.NFTA_CHAIN_NAME, name).end()
}

func newRule(c chainDef, r rule) message {
	return nftMessage(unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_APPEND, c.family).
		text(unix.NFTA_RULE_TABLE, tableName).text(unix.NFTA_RULE_CHAIN, c.name).
		bytes(unix.NFTA_RULE_EXPRESSIONS|unix.NLA_F_NESTED, expressions(c.family, r)).end()
}

// expressions is a rule's list of expressions. An expression of this package that cannot be
// encoded is a defect of it, which any test shows.
func expressions(family byte, r rule) []byte {
	var m message
	for _, e := range r {
		b, err := expr.Marshal(family, e)
		if err != nil {
			panic("filter: an expression that cannot be encoded: " + err.Error())
		}
		m = m.bytes(unix.NFTA_LIST_ELEM|unix.NLA_F_NESTED, b)
	}
	return m
}

// elem is one element of a set: what the rules look up.
type elem struct {
	family byte
	set    string
	key    string // the bytes of the key, not rounded up
	note   string // its comment
}

func (e elem) message(typ, flags uint16) message {
	return nftMessage(typ, flags, e.family).
		text(unix.NFTA_SET_ELEM_LIST_TABLE, tableName).text(unix.NFTA_SET_ELEM_LIST_SET, e.set).
		nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS, func(m message) message {
			return m.nest(unix.NFTA_LIST_ELEM, func(m message) message {
				m = m.nest(unix.NFTA_SET_ELEM_KEY, func(m message) message {
					return m.bytes(unix.NFTA_DATA_VALUE, []byte(e.key))
				})
				if e.note != "" && typ == unix.NFT_MSG_NEWSETELEM {
					m = m.bytes(unix.NFTA_SET_ELEM_USERDATA, comment(e.note))
				}
				return m
			})
		}).end()
}

func newElem(e elem) message {
	return e.message(unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
}

func delElem(e elem) message { return e.message(unix.NFT_MSG_DELSETELEM, 0) }
