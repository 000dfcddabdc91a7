// Package standin tests rutter varpd on a real kernel with VXLAN and macvlan in
// namespaces, against correct SVP servers and against faulty ones that crash
// linux-cn-varpd (spec/svp.md section 4.5).
//
// It has only tests. They run again inside namespaces of their own, and are skipped if
// the kernel does not allow these.
package standin
