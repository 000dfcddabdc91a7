package napi

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"rutter/log"
)

// Each parser converts a parameter's value into a field, or returns what is wrong with
// it in NAPI's words. Values of a query are strings; lists there are separated by
// commas.

func wrong(message string) *element { return &element{Code: log.ElementInvalid, Message: message} }

func wrongOf(message string, values []string) *element {
	return &element{Code: log.ElementInvalid, Message: message, Invalid: values}
}

// plural adds an ending for more than one.
func plural(word, ending string, n int) string {
	if n == 1 {
		return word
	}
	return word + ending
}

// maxText is NAPI's bound of each text, in characters.
const maxText = 64

func text(v any) (string, *element) {
	s, ok := v.(string)
	switch {
	case !ok:
		return "", wrong("must be a string")
	case utf8.RuneCountInString(s) > maxText:
		return "", wrong(fmt.Sprintf("must not be longer than %d characters", maxText))
	case strings.TrimSpace(s) == "":
		return "", wrong("must not be empty")
	}
	return s, nil
}

// anyText is text that may be empty, or null.
func anyText(v any) (string, *element) {
	if v == nil {
		return "", nil
	}
	if v == "" {
		return "", nil
	}
	return text(v)
}

func boolean(v any) (bool, *element) {
	switch v := v.(type) {
	case bool:
		return v, nil
	case string:
		if v == "true" || v == "false" {
			return v == "true", nil
		}
	}
	return false, wrong("must be a boolean value")
}

func uuid(v any) (log.UUID, *element) {
	s, _ := v.(string)
	u, err := log.ParseUUID(s)
	if err != nil {
		return u, wrong("invalid UUID")
	}
	return u, nil
}

// uuidPrefix reads a UUID, or the beginning of one with a * after it, and returns what
// tells whether a UUID is meant.
func uuidPrefix(v any) (func(log.UUID) bool, *element) {
	s, bad := text(v)
	if bad != nil {
		return nil, bad
	}
	start, isPrefix := strings.CutSuffix(s, "*")
	switch {
	case strings.Count(s, "*") > 1:
		return nil, wrong("need only 1 wildcard")
	case !isPrefix && strings.Contains(s, "*"):
		return nil, wrong("only UUID prefixes are allowed")
	case isPrefix && strings.Trim(start, "0123456789abcdef-") != "":
		return nil, wrong("UUID prefix has invalid chars")
	case isPrefix:
		return func(u log.UUID) bool { return strings.HasPrefix(u.String(), start) }, nil
	}
	whole, bad := uuid(s)
	return func(u log.UUID) bool { return u == whole }, bad
}

// list reads an array of strings, or one string of several parted by commas;
// null and "" are none.
func list(v any) ([]string, bool) {
	switch v := v.(type) {
	case nil:
		return nil, true
	case string:
		var parts []string
		for part := range strings.SplitSeq(v, ",") {
			if part = strings.TrimSpace(part); part != "" {
				parts = append(parts, part)
			}
		}
		return parts, true
	case []any:
		parts := make([]string, 0, len(v))
		for _, e := range v {
			s, ok := e.(string)
			if !ok {
				return nil, false
			}
			parts = append(parts, s)
		}
		return parts, true
	}
	return nil, false
}

// listOf reads a list, each element by parse.
func listOf[T any](v any, parse func(string) (T, error), singular, ending string) ([]T, *element) {
	texts, ok := list(v)
	if !ok {
		return nil, wrong("must be an array of strings")
	}
	all := make([]T, 0, len(texts))
	var wrongs []string
	for _, s := range texts {
		e, err := parse(s)
		if err != nil {
			wrongs = append(wrongs, s)
			continue
		}
		all = append(all, e)
	}
	if wrongs != nil {
		return nil, wrongOf(plural(singular, ending, len(wrongs)), wrongs)
	}
	return all, nil
}

func uuids(v any) ([]log.UUID, *element) { return listOf(v, log.ParseUUID, "invalid UUID", "s") }

func words(v any) ([]string, *element) {
	texts, ok := list(v)
	if !ok {
		return nil, wrong("must be an array of strings")
	}
	return texts, nil
}

// parseAddr reads an address without a zone; one of IPv4 may come mapped.
func parseAddr(s string) (netip.Addr, error) {
	ip, err := netip.ParseAddr(s)
	if err == nil && ip.Zone() != "" {
		err = fmt.Errorf("%s has a zone", s)
	}
	return ip.Unmap(), err
}

func addr(v any) (netip.Addr, *element) {
	s, _ := v.(string)
	ip, err := parseAddr(s)
	if err != nil {
		return netip.Addr{}, wrong("invalid IP address")
	}
	return ip, nil
}

// noAddr is addr, where null and "" remove the address.
func noAddr(v any) (netip.Addr, *element) {
	if v == nil || v == "" {
		return netip.Addr{}, nil
	}
	return addr(v)
}

func addrs(v any) (log.Addresses, *element) {
	all, wrong := listOf(v, parseAddr, "invalid IP", "s")
	return log.Addresses(all), wrong
}

func mac(v any) (log.MAC, *element) {
	s, _ := v.(string)
	m, err := log.ParseMAC(s)
	if err != nil {
		return m, wrong("invalid MAC address")
	}
	return m, nil
}

// macs reads those of an aggregation.
func macs(v any) ([]log.MAC, *element) {
	all, wrong := listOf(v, log.ParseMAC, "invalid MAC addresses", "")
	if wrong != nil && wrong.Invalid == nil {
		wrong.Message = "must be an array of MAC addresses"
	}
	return all, wrong
}

// number reads a whole number, also as a string, as NAPI does.
func number(low, high uint64, message string) func(v any) (uint64, *element) {
	return func(v any) (uint64, *element) {
		var digits string
		switch v := v.(type) {
		case json.Number:
			digits = v.String()
		case string:
			digits = v
		}
		n, err := strconv.ParseUint(digits, 10, 64)
		if err != nil || n < low || n > high {
			return 0, wrong(message)
		}
		return n, nil
	}
}

// small is number for fields of 32 bits.
func small(low, high uint64, message string) func(v any) (uint32, *element) {
	parse := number(low, high, message)
	return func(v any) (uint32, *element) {
		n, wrong := parse(v)
		return uint32(n), wrong
	}
}

const messageVLAN = "VLAN ID must be a number between 0 and 4094, and not 1"

// vlan reads a VLAN's number; 1 is refused as the message says.
func vlan(v any) (uint32, *element) {
	n, bad := small(0, 4094, messageVLAN)(v)
	if bad == nil && n == 1 {
		return 0, wrong(messageVLAN)
	}
	return n, bad
}

var (
	vnet       = small(0, log.MaxVNet, "VNET ID must be a number between 0 and 16777215")
	networkMTU = onlyNumber(small(MinNetworkMTU, MaxNetworkMTU, messageNetworkMTU), messageNetworkMTU)
	tagMTU     = onlyNumber(small(1500, 9000, messageTagMTU), messageTagMTU)
)

const (
	messageNetworkMTU = "mtu must be a number between 576 and 9000"
	messageTagMTU     = "mtu must be a number between 1500 and 9000"
)

// onlyNumber refuses a number in a string.
func onlyNumber(parse func(any) (uint32, *element), message string) func(any) (uint32, *element) {
	return func(v any) (uint32, *element) {
		if _, ok := v.(json.Number); !ok {
			return 0, wrong(message)
		}
		return parse(v)
	}
}

// oneOf reads one of some words.
func oneOf(allowed ...string) func(v any) (string, *element) {
	return func(v any) (string, *element) {
		s, _ := v.(string)
		if slices.Contains(allowed, s) {
			return s, nil
		}
		return "", wrong(`must be one of: "` + strings.Join(allowed, `", "`) + `"`)
	}
}

// Bounds of a subnet's prefix (spec/napi.md section 3.4).
const minPrefix = 8

func subnet(v any) (netip.Prefix, *element) {
	s, ok := v.(string)
	if !ok {
		return netip.Prefix{}, wrong("must be a string")
	}
	ip, bits, ok := strings.Cut(s, "/")
	if !ok || strings.Contains(bits, "/") {
		return netip.Prefix{}, wrong("Subnet must be in CIDR form")
	}
	first, err := parseAddr(ip)
	if err != nil {
		return netip.Prefix{}, wrong("Subnet IP invalid")
	}
	n, err := strconv.Atoi(bits)
	if err != nil || n < minPrefix || n > first.BitLen() {
		return netip.Prefix{}, wrong("Subnet bits invalid")
	}
	p := netip.PrefixFrom(first, n)
	if p.Masked() != p {
		return netip.Prefix{}, wrong("invalid CIDR format")
	}
	return p, nil
}

// allocatedBits is the length of the subnets that servers choose, NAPI's only one.
const allocatedBits = 24

func prefixLength(v any) (uint32, *element) {
	n, ok := v.(json.Number)
	switch {
	case !ok:
		return 0, wrong("Subnet prefix should be number")
	case n.String() != strconv.Itoa(allocatedBits):
		return 0, wrong(fmt.Sprintf("Only /%d is supported", allocatedBits))
	}
	return allocatedBits, nil
}

// linkLocal is the gateway of a route to the link itself.
const linkLocal = "linklocal"

func routes(v any) (log.Routes, *element) {
	if v == nil {
		return nil, nil
	}
	m, ok := v.(map[string]any)
	if !ok {
		return nil, wrong("must be an object")
	}
	var all log.Routes
	var wrongs []string
	bad := 0 // routes
	for _, dst := range slices.Sorted(maps.Keys(m)) {
		gateway := m[dst]
		to, isText := gateway.(string)
		_, dstErr := parseAddr(dst)
		if dstErr != nil {
			p, err := netip.ParsePrefix(dst)
			if dstErr = err; err == nil && p.Masked() != p {
				dstErr = fmt.Errorf("host bits")
			}
		}
		var gwErr error
		if to != linkLocal {
			_, gwErr = parseAddr(to)
		}
		if dstErr != nil {
			wrongs = append(wrongs, dst)
		}
		if !isText || gwErr != nil {
			wrongs = append(wrongs, fmt.Sprint(gateway))
		}
		if dstErr != nil || !isText || gwErr != nil {
			bad++
		}
		all = append(all, log.Route{Dst: dst, Gateway: to})
	}
	if wrongs != nil {
		return nil, wrongOf(plural("invalid route", "s", bad), wrongs)
	}
	return all, nil
}
