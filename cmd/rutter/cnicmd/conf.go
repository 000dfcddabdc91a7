package cnicmd

import (
	"encoding/json"
	"fmt"
	"math"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/types/create"

	"rutter/cmd/rutter/localhttp"
	"rutter/log"
)

// Limits of what a runtime sends.
const (
	// maxInput bounds the bytes of a configuration, with the previous result and the valid
	// attachments: 10,000 of these are a megabyte.
	maxInput = 4 << 20
	// maxArgs bounds the bytes of CNI_ARGS.
	maxArgs = 16 << 10
	// maxContainerID bounds the bytes of CNI_CONTAINERID. Runtimes use 64.
	maxContainerID = 256
	// maxAsked bounds the addresses that are asked for.
	maxAsked = 16
)

// Bounds of the timeout of a command.
const (
	// defaultTimeout is less than the two minutes that the kubelet and podman give a plugin.
	defaultTimeout = 60 * time.Second
	minTimeout     = time.Second
	maxTimeout     = 10 * time.Minute
)

// defaultNetNS is the folder in which the agent looks for namespaces, unless its --netns says
// otherwise.
const defaultNetNS = "/run/netns"

// conf is the configuration of one command, as the runtime sends it to standard input.
type conf struct {
	types.PluginConf
	// Network is the network of the log: its UUID or its name.
	Network string `json:"network"`
	// OwnerUUID is the owner of the VM and its NICs.
	OwnerUUID log.UUID `json:"owner_uuid"`
	// MTU is what the network must have, in bytes; 0: any.
	MTU uint32 `json:"mtu"`
	// Timeout of a command, as in "30s"; "": defaultTimeout.
	Timeout string `json:"timeout"`
	// Socket is the Unix socket of the agent.
	Socket string `json:"socket"`
	// NetNS is the folder in which the agent looks for namespaces (its --netns).
	NetNS string `json:"netns"`
	// IPMasq is refused: addresses of a network of the log are not translated by its nodes.
	IPMasq bool `json:"ipMasq"`

	RuntimeConfig struct {
		IPs []string `json:"ips"`
		MAC string   `json:"mac"`
	} `json:"runtimeConfig"`
	Args struct {
		CNI struct {
			IPs []string `json:"ips"`
			MAC string   `json:"mac"`
		} `json:"cni"`
	} `json:"args"`

	// Attachments is the name that spec 1.1.0 first had for ValidAttachments.
	Attachments []types.GCAttachment `json:"cni.dev/attachments"`

	timeout time.Duration
}

// confOf reads a configuration. It checks what every command needs; what ADD needs more is
// checked by asked. Errors: types.Error.
func confOf(text []byte) (*conf, error) {
	if len(text) > maxInput {
		return nil, types.NewError(types.ErrDecodingFailure, fmt.Sprintf("the configuration has %d bytes: at most %d are read", len(text), maxInput), "")
	}
	c := &conf{Socket: localhttp.DefaultSocket, NetNS: defaultNetNS, timeout: defaultTimeout}
	if err := json.Unmarshal(text, c); err != nil {
		return nil, types.NewError(types.ErrDecodingFailure, "the configuration cannot be read", err.Error())
	}
	if c.Timeout != "" {
		d, err := time.ParseDuration(c.Timeout)
		if err != nil || d < minTimeout || d > maxTimeout {
			return nil, invalidConf("timeout %q: want a time from %s to %s, as in 30s", c.Timeout, minTimeout, maxTimeout)
		}
		c.timeout = d
	}
	if !localhttp.IsSocket(c.Socket) {
		return nil, invalidConf("socket %q: want the absolute path of the agent's Unix socket (rutter agent --socket)", c.Socket)
	}
	if !filepath.IsAbs(c.NetNS) {
		return nil, invalidConf("netns %q: want the absolute path of the folder that the agent has as --netns", c.NetNS)
	}
	if c.ValidAttachments == nil {
		c.ValidAttachments = c.Attachments
	}
	if err := c.previous(); err != nil {
		return nil, err
	}
	return c, nil
}

// previous reads the previous result, if there is one.
func (c *conf) previous() error {
	if c.RawPrevResult == nil {
		return nil
	}
	if _, has := c.RawPrevResult["cniVersion"]; !has && c.CNIVersion != "" {
		c.RawPrevResult["cniVersion"] = c.CNIVersion // runtimes of 0.3.0 may leave it out
	}
	for _, list := range []string{"interfaces", "ips", "routes"} {
		if items, is := c.RawPrevResult[list].([]any); is && slices.Contains(items, nil) {
			return types.NewError(types.ErrDecodingFailure, fmt.Sprintf("prevResult.%s has an item that is null", list), "") // the library reads what it points to
		}
	}
	text, err := json.Marshal(c.RawPrevResult)
	if err == nil {
		c.PrevResult, err = create.CreateFromBytes(text)
	}
	if err != nil {
		return types.NewError(types.ErrDecodingFailure, "prevResult cannot be read", err.Error())
	}
	return nil
}

func invalidConf(format string, args ...any) error {
	return types.NewError(types.ErrInvalidNetworkConfig, fmt.Sprintf(format, args...), "")
}

// podArgs are the arguments in CNI_ARGS that mean something here. The names of the fields
// are those of the arguments.
type podArgs struct {
	types.CommonArgs
	IP, MAC      types.UnmarshallableString
	K8S_POD_NAME types.UnmarshallableString
	// These are accepted, and not used.
	K8S_POD_NAMESPACE, K8S_POD_INFRA_CONTAINER_ID, K8S_POD_UID types.UnmarshallableString
}

// asked is what one ADD asks for.
type asked struct {
	alias string       // of the VM
	ips   []netip.Addr // none: the network's next free one
	mac   log.MAC      // zero: a drawn one
}

// askedOf reads what an ADD asks for, beside the configuration. Capabilities of the runtime
// come before the arguments of the configuration, and these before CNI_ARGS, as CNI's
// conventions have it. Errors: types.Error.
func askedOf(c *conf, args *skel.CmdArgs) (a asked, err error) {
	if err := c.checkAdd(); err != nil {
		return a, err
	}
	pod, err := podOf(args.Args)
	if err != nil {
		return a, err
	}
	a.alias = string(pod.K8S_POD_NAME)
	if a.alias == "" {
		a.alias = args.ContainerID
	}
	if len(a.alias) > log.MaxNameBytes {
		a.alias = a.alias[:log.MaxNameBytes]
	}
	ips := c.RuntimeConfig.IPs
	if len(ips) == 0 {
		ips = c.Args.CNI.IPs
	}
	if len(ips) == 0 && pod.IP != "" {
		ips = strings.Split(string(pod.IP), ",")
	}
	if a.ips, err = addressesOf(ips); err != nil {
		return a, err
	}
	for _, text := range []string{c.RuntimeConfig.MAC, c.Args.CNI.MAC, string(pod.MAC)} {
		if text == "" {
			continue
		}
		if a.mac, err = log.ParseMAC(text); err != nil {
			return a, invalidConf("%s", err)
		}
		break
	}
	return a, nil
}

// checkAdd refuses a configuration by which no NIC can be made.
func (c *conf) checkAdd() error {
	switch {
	case c.Network == "":
		return invalidConf(`"network" is missing: name a network of the log by its UUID or its name (rutter network list)`)
	case c.OwnerUUID.IsZero():
		return invalidConf(`"owner_uuid" is missing: name the owner of the containers' NICs`)
	case !c.IPAM.IsEmpty():
		return types.NewError(types.ErrUnsupportedField, fmt.Sprintf("ipam.type %q is not supported: addresses come from the network of the log; leave ipam out", c.IPAM.Type), "")
	case c.IPMasq:
		return types.NewError(types.ErrUnsupportedField, "ipMasq true is not supported: the gateway of the network translates addresses; leave ipMasq out", "")
	case c.MTU > math.MaxUint16:
		return invalidConf("mtu %d: want at most %d", c.MTU, math.MaxUint16)
	}
	return nil
}

// podOf reads CNI_ARGS.
func podOf(text string) (*podArgs, error) {
	if len(text) > maxArgs {
		return nil, types.NewError(types.ErrInvalidEnvironmentVariables, fmt.Sprintf("CNI_ARGS has %d bytes: at most %d are read", len(text), maxArgs), "")
	}
	pod := &podArgs{}
	if err := types.LoadArgs(strings.TrimSuffix(text, ";"), pod); err != nil {
		return nil, types.NewError(types.ErrInvalidEnvironmentVariables, "CNI_ARGS cannot be read", err.Error())
	}
	return pod, nil
}

// addressesOf reads addresses, which may have the length of a prefix: that of the network
// counts.
func addressesOf(texts []string) (ips []netip.Addr, err error) {
	if len(texts) > maxAsked {
		return nil, invalidConf("%d addresses are asked for: at most %d can be", len(texts), maxAsked)
	}
	for _, text := range texts {
		address, _, _ := strings.Cut(text, "/")
		ip, err := netip.ParseAddr(address)
		if err != nil || ip.Zone() != "" {
			return nil, invalidConf("ip %q: want an address of the network, as in 10.0.0.7", text)
		}
		ips = append(ips, ip.Unmap())
	}
	return ips, nil
}
