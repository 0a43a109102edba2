## HAProxy checks the health of every process twice a second, and keeps requests while a service has no healthy process:
## each process is in its backend a second time as a spare without checks, which is retried for ten seconds.
<%def name="headers(fields)">${"".join(f' hdr {name} "{value}"' for name, value in fields.items())}</%def>\
<%def name="html(problem)">content-type "${page.MEDIA_TYPE}" string '${page.page(problem)}'${headers(page.headers(problem))}</%def>\
<%def name="error_pages()">\
% for status, problem in answered:
    http-error status ${status} ${html(problem)}
% endfor
</%def>\
<%def name="bind(listen)">${listen if ":" in listen else f":{listen}"}</%def>\
<%def name="sources(networks)">${" ".join(("src", *networks)) if networks else "always_false"}</%def>\
<%def name="matches(route)">path_reg '^(${route.path})$'</%def>\
## `tracked`: the backend whose health checks count for these servers too.
<%def name="servers(addresses, tracked='', maxconn='')">\
% for n, address in enumerate(addresses, 1):
    server ${n} ${address}${maxconn}${f" no-check track {tracked}/{n}" if tracked else ""}
% endfor
% for n, address in enumerate(addresses, 1):
    server spare${n} ${address}${maxconn} no-check backup
% endfor
</%def>\
## Of ours alone: a service's own 502 has no Retry-After.
<%def name="no_answer_is_503()">\
    http-after-response set-status 503 if { status 502 504 } { res.fhdr(retry-after) -m found }
</%def>\
## Requests are counted over ten seconds.
<%def name="limit_requests(per_s, burst)">\
    http-request return status 429 ${html(balancers.TOO_MANY_REQUESTS)} \
if person !stream { sc0_http_req_rate gt ${per_s * 10 + burst} }
    http-request deny deny_status 429 if !stream { sc0_http_req_rate gt ${per_s * 10 + burst} }
</%def>\
<%def name="limit_streams(most)">\
    http-request return status 200 content-type text/event-stream hdr Cache-Control no-store \
string "${balancers.REJECTED}" if stream { sc0_conn_cur gt ${most} }
</%def>\
# ${balancers.GENERATED}
global
    ssl-default-bind-options ssl-min-ver TLSv1.2
    ssl-load-extra-del-ext

defaults
    mode http
    balance random
    option redispatch 1
    option allbackups
    option abortonclose
    retries 10
    retry-on conn-failure empty-response
    timeout connect 1s
    timeout client 75s
    timeout http-request 15s
    timeout http-keep-alive 75s
    timeout queue 10s
    timeout server ${balancers.ANSWER_WITHIN_S}s
    timeout check 3s
    option httpchk
    http-check send meth GET uri /readyz
    http-check expect status 200
    default-server check inter 500ms fall 2 rise 1 maxconn 1000 init-addr last,libc,none
    unique-id-format %[uuid()]
% for status, problem in answered:
    http-error status ${status} content-type ${balancers.PROBLEM_TYPE} lf-string '${balancers.document(problem, "%ID")}'\
${"".join(f" hdr {name} {value}" for name, value in problem.headers().items())}
% endfor

# Public answers, for a second.
cache public
    total-max-size ${balancers.CACHE_MIB}
    max-object-size ${balancers.CACHED_BODY_MAX_KIB * 1024}
    max-age 1
    process-vary on

backend addresses
    stick-table type ipv6 size 1m expire 30s store http_req_rate(10s)
backend streams_of_addresses
    stick-table type ipv6 size 1m expire 30s store conn_cur

backend nowhere
    http-request deny deny_status 404

# The same for a person's browser that asks for a document: what HAProxy says by itself is a page.
backend nowhere_pages
${error_pages()}\
    http-request deny deny_status 404

frontend public
    bind ${bind(plan.listen)}
% if plan.certificate:
    bind ${bind(plan.listen_tls)} ssl crt ${plan.certificate} alpn h2,http/1.1
    http-request redirect code 308 location https://%[req.hdr(host),host_only]${plan.tls_port}%[pathq] unless { ssl_fc }
    http-after-response set-header Strict-Transport-Security "${balancers.HSTS}" if { ssl_fc }
% endif
    ## The client's address and scheme. Fans are counted by the services, which verify their credentials.
    http-request set-header X-Request-Id %[unique-id]
    acl trusted ${sources(plan.trusted)}
    http-request del-header X-Forwarded-Proto if !trusted
    http-request set-header X-Forwarded-Proto https if { ssl_fc }
    http-request set-header X-Forwarded-Proto http if !{ req.hdr(x-forwarded-proto) -m found }
    ## An address may stand in brackets, with a port or with quotes; a client who is not named is no proxy.
    http-request replace-value X-Forwarded-For '^"?\[?([0-9A-Fa-f:.]+)(\](:[0-9]*)?)?"?$' '\1' if trusted
    acl nameless var(txn.nameless) -m bool
    http-request set-var(txn.nameless) bool(true) if trusted { req.fhdr(x-forwarded-for) -m found } \
!{ hdr_ip(x-forwarded-for,-1) -m found }
    http-request set-src hdr_ip(x-forwarded-for,-1) if trusted
    http-request set-src hdr_ip(x-forwarded-for,-2) if trusted
    http-request set-src hdr_ip(x-forwarded-for,-3) if trusted
    http-request set-header X-Forwarded-For %[src]
    http-request set-header X-Forwarded-For unknown if nameless
    acl operator ${sources(plan.operators)}
% for route in routes:
% if route.private:
    http-request deny deny_status 404 if { ${matches(route)} } !operator
% endif
% endfor
    http-request set-var(txn.person) bool(true) if METH_GET { req.hdr(accept) -m sub text/html }
    acl person var(txn.person) -m bool
% for route in routes:
% if route.stream:
    acl stream ${matches(route)}
% endif
% endfor
    http-request track-sc0 src,ipmask(32,64) table addresses if !stream
    http-request track-sc0 src,ipmask(32,64) table streams_of_addresses if stream
${limit_requests(plan.limits.address_requests_per_s, plan.limits.address_burst)}\
${limit_streams(plan.limits.address_streams)}\
    http-request deny deny_status 413 if { req.body_size gt ${balancers.BODY_MAX_KIB * 1024} }
    acl repeatable method GET HEAD OPTIONS PUT DELETE
    acl repeatable req.hdr(idempotency-key) -m found
% for route in routes:
% if route.repeatable:
    acl repeatable ${matches(route)}
% endif
% endfor
    http-request disable-l7-retry if !repeatable
% for route in routes:
% if route.cached:
    http-request set-var(txn.cached) bool(true) if METH_GET { ${matches(route)} }
% endif
% endfor
    acl cached var(txn.cached) -m bool
    http-request del-header Authorization if cached
    http-request set-pathq %[path] if cached
    http-request cache-use public if cached
    http-response cache-store public if cached
${no_answer_is_503()}\
    use_backend gateway_pages if person { path_reg '^/(o|[eo]/.*)?$' }
% for route in routes:
    use_backend ${route.service} if { ${matches(route)} }
% endfor
    use_backend nowhere_pages if person
    default_backend nowhere
% for service, processes in plan.processes.items():
<% streams = any(route.stream for route in routes if route.service == service) %>
backend ${service}
% if streams:
    balance leastconn
    timeout server ${balancers.STREAM_SILENT_MAX_S}s
    option http-no-delay
% endif
${servers([process.public for process in processes], maxconn=" maxconn 20000" if streams else "")}\
% endfor

backend gateway_pages
${error_pages()}\
${servers([process.public for process in plan.processes["gateway"]], tracked="gateway")}\
% for service, address in plan.internal.items():

## An internal API, healthy when the public one is; every call may be retried.
frontend ${service}_front
    bind ${address}
${no_answer_is_503()}\
    default_backend ${service}_inside

backend ${service}_inside
${servers([process.internal for process in plan.processes[service]], tracked=service)}\
% endfor
