package manpages

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// option is a flag as a page shows it.
type option struct {
	names     []string // with their dashes
	value     string   // the word for its value, or empty
	usage     string
	standard  string // the default in words, or empty
	variables []string
}

// optionsOf are the flags that help shows.
func optionsOf(flags []cli.Flag) []option {
	var all []option
	for _, flag := range flags {
		if visible, ok := flag.(cli.VisibleFlag); ok && !visible.IsVisible() {
			continue
		}
		documented, ok := flag.(cli.DocGenerationFlag)
		if !ok {
			continue
		}
		o := option{variables: documented.GetEnvVars(), usage: documented.GetUsage()}
		for _, name := range flag.Names() {
			if len(name) == 1 {
				o.names = append(o.names, "-"+name)
			} else {
				o.names = append(o.names, "--"+name)
			}
		}
		if documented.TakesValue() {
			o.value, o.standard = "VALUE", strings.Trim(documented.GetDefaultText(), `"`)
			if parts := strings.SplitN(o.usage, "`", 3); len(parts) == 3 {
				o.value, o.usage = parts[1], strings.Join(parts, "")
			}
		}
		all = append(all, o)
	}
	return all
}

// same reports whether two commands mean the same by a flag.
func (o option) same(other option) bool {
	return slices.Equal(o.names, other.names) && o.usage == other.usage && o.standard == other.standard
}

// path is the file or folder that is the flag's default, or empty.
func (o option) path() string {
	if !strings.HasPrefix(o.standard, "/") || strings.ContainsAny(o.standard, " ,") {
		return ""
	}
	return o.standard
}

// sharedBy are the flags that at least two of the verbs have and mean the same by.
func sharedBy(verbs []verb) []option {
	var all []option
	for i, v := range verbs {
		for _, o := range v.options {
			again := func(other verb) bool { return slices.ContainsFunc(other.options, o.same) }
			if slices.ContainsFunc(verbs[i+1:], again) && !slices.ContainsFunc(all, o.same) {
				all = append(all, o)
			}
		}
	}
	return all
}
