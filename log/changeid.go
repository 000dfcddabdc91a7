package log

// ChangeID returns the id of an encoded change, also of one that does not decode
// behind its id; false if there is none to be found.
func ChangeID(b []byte) (id UUID, ok bool) {
	if len(b) == 0 || b[0] != FormatVersion {
		return UUID{}, false
	}
	v := newDecoder(nil)
	v.u.b = b[1:]
	v.enter()
	v.uuid("", &id)
	return id, v.err == nil && !id.IsZero()
}
