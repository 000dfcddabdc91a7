package configcmd

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/internal/app"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
)

// Section is a section of the file: the flags that it sets, and a function that checks
// them.
type Section struct {
	Name  string
	Flags func() []cli.Flag
	Check func(*cli.Context) error
}

// Client is the section of every command that asks servers.
func Client() Section {
	return Section{"client", clientFlags, func(c *cli.Context) error {
		_, err := term.NewClient(c)
		return err
	}}
}

func clientFlags() []cli.Flag {
	return append([]cli.Flag{term.ServersFlag(), output.Flag()}, term.TLSFlags()...)
}

// Settings are the sections and commands of a program.
type Settings struct {
	Sections []Section
	// Commands returns all commands of the program, to know their variables.
	Commands func() []*cli.Command
}

func (s *Settings) section(name string) (Section, bool) {
	i := slices.IndexFunc(s.Sections, func(s Section) bool { return s.Name == name })
	if i < 0 {
		return Section{}, false
	}
	return s.Sections[i], true
}

func configFlag() cli.Flag {
	return &cli.StringFlag{Name: "config", EnvVars: []string{"RUTTER_CONFIG"}, Usage: "TOML `FILE` of settings, which flags and variables win over"}
}

// Configure makes commands and their subcommands take settings from the file. Programs
// that a command starts take settings from flags only.
func (s *Settings) Configure(commands []*cli.Command) {
	for _, c := range commands {
		switch c.Name {
		case "server", "agent", "vms", "varpd":
			s.configureAs(c, c.Name)
		case "demo":
			c.Before = func(*cli.Context) error { return term.ForgetVariables() }
		case "config", "completion", "version", "dev", "bench":
		default:
			s.configureAs(c, "client")
		}
	}
}

func (s *Settings) configureAs(c *cli.Command, name string) {
	if c.Action != nil {
		c.Flags = append(slices.Clone(c.Flags), configFlag())
		c.Before = func(ctx *cli.Context) error { return s.applyFile(ctx, name) }
	}
	for _, sub := range c.Subcommands {
		s.configureAs(sub, name)
	}
}

// applyFile sets the flags that neither the command line nor a variable set.
func (s *Settings) applyFile(c *cli.Context, name string) error {
	if name != "client" {
		s.warnVariables(c.App.ErrWriter)
	}
	path := c.String("config")
	if path == "" {
		return nil
	}
	file, err := s.read(path)
	if err != nil {
		return err
	}
	section, _ := s.section(name)
	known := section.Flags()
	for _, key := range file.keys(name) {
		// A flag of the same name that means something else has other variables.
		want, have := app.FlagNamed(known, key), app.FlagNamed(c.Command.Flags, key)
		value := file.sections[name][key]
		if have == nil || !slices.Equal(variables(want), variables(have)) || c.IsSet(key) || value == plainText(valueOf(c, have)) {
			continue // a default that the file writes down sets nothing
		}
		if err := c.Set(key, value); err != nil {
			return term.Usagef("%s: [%s] %s: %w", path, name, key, err)
		}
	}
	return nil
}

// variables are the environment variables of a flag.
func variables(f cli.Flag) []string {
	if documented, ok := f.(cli.DocGenerationFlag); ok {
		return documented.GetEnvVars()
	}
	return nil
}

// warnVariables warns of environment variables with the program's prefix that no flag
// has.
func (s *Settings) warnVariables(w io.Writer) {
	known := knownVariables(s.Commands(), []string{"RUTTER_CONFIG", term.PassphraseVariable})
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, term.VariablePrefix) && !term.PassedOn(name) && !slices.Contains(known, name) {
			output.Printf(w, "rutter: the variable %s means nothing%s\n", name, didYouMean(name, known))
		}
	}
}

func knownVariables(commands []*cli.Command, known []string) []string {
	for _, c := range commands {
		for _, f := range c.Flags {
			known = append(known, variables(f)...)
		}
		known = knownVariables(c.Subcommands, known)
	}
	return known
}

// Command is rutter config, which shows and checks settings.
func (s *Settings) Command() *cli.Command {
	return &cli.Command{
		Name: "config", Usage: "settings: what they are, where they come from, whether a file is right", Category: "Operating",
		Description: term.Examples(
			"rutter config print --config /etc/rutter/rutter.toml --origin",
			"rutter config print server --origin -- --listen 10.0.0.1:7420",
			"rutter config check /etc/rutter/rutter.toml",
		) + "\n\nA flag wins over a variable, that over the file, that over the default. The file has the sections\n[server], [agent], [vms], [varpd] and [client], whose keys are the names of the flags.",
		Subcommands: []*cli.Command{
			{
				Name: "print", Usage: "every setting, as a file that would give the same", ArgsUsage: "[server | agent | client] [-- FLAGS]", Action: s.print,
				Flags:       []cli.Flag{configFlag(), output.Flag(), &cli.BoolFlag{Name: "origin", Usage: "say where each value comes from"}},
				Description: term.Examples("rutter config print > rutter.toml", "rutter config print agent --config rutter.toml --origin"),
			},
			{
				Name: "check", Usage: "say whether a file's settings would be taken, and whether the files and folders that they name are there", ArgsUsage: "FILE", Action: s.check,
				Flags: []cli.Flag{&cli.BoolFlag{Name: "no-files", Usage: "do not look at files and folders: the settings are those of another machine"}},
				Description: term.Examples("rutter config check /etc/rutter/rutter.toml", "rutter config check --no-files cn7.toml") +
					"\n\nWhether a file can be read is tried as the user who runs this: sudo -u rutter rutter config check …\ntries it as a server's user. Exit codes: 0 the settings would be taken; 2 they would not.",
			},
		},
	}
}

// setting is one value with its origin.
type setting struct {
	Section string `json:"section"`
	Key     string `json:"key"`
	Value   any    `json:"value"`
	Origin  string `json:"origin"`
}

func (s *Settings) print(c *cli.Context) error {
	args := c.Args().Slice()
	chosen := s.Sections
	if len(args) > 0 {
		section, ok := s.section(args[0])
		if !ok {
			return term.Usagef("%q is no section: want server, agent, varpd or client", args[0])
		}
		chosen, args = []Section{section}, args[1:]
	}
	s.warnVariables(c.App.ErrWriter)
	var settings []setting
	for _, section := range chosen {
		found, err := s.settings(c, section, c.String("config"), args)
		if err != nil {
			return err
		}
		settings = append(settings, found...)
	}
	return output.One(c, settings, func(w io.Writer) { writeSettings(w, settings, c.Bool("origin")) })
}

func writeSettings(out io.Writer, settings []setting, origin bool) {
	w := output.Aligned(out)
	last := ""
	for _, s := range settings {
		if s.Section != last {
			if last != "" {
				output.Print(w, "\n")
			}
			last = s.Section
			output.Printf(w, "[%s]\n", last)
		}
		output.Printf(w, "%s = %s", s.Key, tomlText(s.Value))
		if origin {
			output.Printf(w, "\t# %s", s.Origin)
		}
		output.Print(w, "\n")
	}
	_ = w.Flush() // the terminal is gone
}

// tomlText is a value as TOML has it.
func tomlText(v any) string {
	switch v := v.(type) {
	case string:
		return strconv.Quote(v)
	case []string:
		parts := make([]string, len(v))
		for i, e := range v {
			parts[i] = strconv.Quote(e)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	default:
		return fmt.Sprint(v)
	}
}

// plainText is a value as a flag takes it.
func plainText(v any) string {
	if list, ok := v.([]string); ok {
		return strings.Join(list, ",")
	}
	return fmt.Sprint(v)
}

// run evaluates a section's flags as its command would, and calls do.
func (s *Settings) run(c *cli.Context, section Section, path string, args []string, do func(*cli.Context) error) error {
	cmd := &cli.Command{Name: section.Name, Flags: section.Flags(), Action: func(inner *cli.Context) error {
		if err := term.NoArguments(inner); err != nil {
			return err
		}
		return do(inner)
	}}
	s.configureAs(cmd, section.Name)
	line := []string{"rutter", section.Name}
	if path != "" {
		line = append(line, "--config", path)
	}
	return app.Run(c.Context, app.New(c.App.Version, io.Discard, io.Discard, []*cli.Command{cmd}), append(line, args...))
}

func (s *Settings) settings(c *cli.Context, section Section, path string, args []string) (settings []setting, err error) {
	var file *configFile
	if path != "" {
		if file, err = s.read(path); err != nil {
			return nil, err
		}
	}
	err = s.run(c, section, path, args, func(inner *cli.Context) error {
		for _, f := range section.Flags() {
			name := f.Names()[0]
			if visible, ok := f.(cli.VisibleFlag); ok && !visible.IsVisible() {
				continue
			}
			settings = append(settings, setting{section.Name, name, valueOf(inner, f), section.origin(f, file, args)})
		}
		return nil
	})
	return settings, err
}

// origin returns where the value of a flag comes from.
func (s Section) origin(f cli.Flag, file *configFile, args []string) string {
	for _, arg := range args {
		name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if strings.HasPrefix(arg, "-") && slices.Contains(f.Names(), name) {
			return "flag --" + f.Names()[0]
		}
	}
	for _, name := range variables(f) {
		if _, ok := os.LookupEnv(name); ok {
			return "variable " + name
		}
	}
	if file != nil && file.has(s.Name, f.Names()[0]) {
		return "file " + file.path
	}
	return "default"
}

// valueOf is a flag's value as it goes into a file.
func valueOf(c *cli.Context, f cli.Flag) any {
	name := f.Names()[0]
	switch v := c.Value(name).(type) {
	case bool, int, int64, uint, uint64, float64, string:
		return v
	case cli.StringSlice:
		return append([]string{}, v.Value()...)
	case time.Duration:
		return v.String()
	default:
		return fmt.Sprint(v)
	}
}

func (s *Settings) check(c *cli.Context) error {
	path, err := term.OneFile(c)
	if err != nil {
		return err
	}
	file, err := s.read(path)
	if err != nil {
		return err
	}
	for _, section := range s.Sections {
		if len(file.sections[section.Name]) == 0 {
			continue
		}
		check := func(inner *cli.Context) error {
			if !c.Bool("no-files") { // first: it names all that is missing, and what to do
				if err := pathsError(checkPaths(inner, section.Flags())); err != nil {
					return err
				}
			}
			return section.Check(inner)
		}
		if err := s.run(c, section, path, nil, check); err != nil {
			return term.Usagef("%s: [%s]: %w", path, section.Name, err)
		}
		output.Printf(c.App.Writer, "[%s] is right\n", section.Name)
	}
	return nil
}
