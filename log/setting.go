package log

// Setting is one thing about the cluster that people choose while it runs. Which
// there are, and what each may be, package projections knows.
type Setting struct {
	Name  string `json:"name"` // the id
	Value string `json:"value"`
	extra
}

// Kind implements Object.
func (*Setting) Kind() Kind { return KindSetting }

// ID implements Object: the setting's name.
func (s *Setting) ID() string { return s.Name }

func (s *Setting) visit(v visitor) {
	v.str("name", &s.Name)
	v.str("value", &s.Value)
}
