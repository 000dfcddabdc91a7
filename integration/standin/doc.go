// Package standin tests rutter varpd where it works: on a real kernel with VXLAN
// and macvlan in namespaces, against SVP servers that behave, and against such as
// linux-cn-varpd dies of (spec/svp.md section 4.5).
//
// It owns nothing but tests. They run again inside namespaces of their own, and
// skip where the kernel does not let us make some.
package standin
