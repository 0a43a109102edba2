## Several processes of each service, limits, streams, TLS, and private addresses on which services call each other.
##
## nginx has no active health checks: it learns from failed requests. A request that was not sent, or may be sent twice,
## is retried at another process.
<%def name="upstream(name, addresses)">\
    upstream ${name} { least_conn; zone ${name} 64k; \
% for address in addresses:
server ${address} max_fails=5 fail_timeout=2s; \
% endfor
keepalive 64; }
</%def>\
<%def name="request_limits()">\
            limit_req zone=addresses burst=${plan.limits.address_burst} nodelay;
</%def>\
<%def name="retry_writes()">            proxy_next_upstream error timeout non_idempotent;
</%def>\
<%def name="headers(fields)">${" ".join(f'add_header {name} "{value}" always;' for name, value in fields.items())}</%def>\
## Problem documents, and pages for people, for the errors that nginx answers by itself. What nginx could not read has no
## path, and a named location would answer it with 500.
<%def name="problems(hsts='')">\
% for problem in balancers.OWN_ERRORS:
<% name = f"{problem.slug}-{problem.code}" %>\
        location = /-/${name} { internal; default_type ${balancers.PROBLEM_TYPE}; ${hsts} ${headers(problem.headers())} \
if ($person) { rewrite ^ /-/${name}-page last; } return ${problem.code} '${balancers.document(problem, "$request_id")}'; }
        location = /-/${name}-page { internal; default_type ${page.MEDIA_TYPE.partition(";")[0]}; charset utf-8; ${hsts} ${headers(page.headers(problem))} \
return ${problem.code} '${page.page(problem)}'; }
% endfor
</%def>\
# ${balancers.GENERATED}
worker_processes auto;
events { worker_connections 16384; }

http {
    access_log off;
    server_tokens off;
    default_type application/octet-stream;
    client_max_body_size ${balancers.BODY_MAX_KIB}k;
    client_body_buffer_size ${balancers.BODY_MAX_KIB}k;  # nothing but the cache is written to disk
    proxy_max_temp_file_size 0;
    client_header_timeout 15s;
    client_body_timeout 15s;
    keepalive_timeout 75s;
% if plan.trusted:
% for network in plan.trusted:
    set_real_ip_from ${network};
% endfor
    real_ip_header X-Forwarded-For;
    real_ip_recursive on;
    geo $realip_remote_addr $trusted { default 0;${"".join(f" {network} 1;" for network in plan.trusted)} }
    map "$trusted $http_x_forwarded_proto" $forwarded_proto { "1 https" https; "1 http" http; default $scheme; }
    # Whom a proxy in front does not name in a way that can be read is no proxy.
    map "$trusted $realip_remote_addr $remote_addr $http_x_forwarded_for" $client_address {
        "~^1 (?<proxy>[^ ]+) \k<proxy> ." unknown;
        default $remote_addr;
    }
% else:
    map $scheme $forwarded_proto { default $scheme; }
    map $remote_addr $client_address { default $remote_addr; }
% endif

    # Of IPv6 a customer has a /64. Fans are counted by the services, which verify their credentials.
    map $binary_remote_addr $address {
        "~^(?<network>(?s:.{8}))(?s:.{8})$" $network;
        default $binary_remote_addr;
    }
    limit_req_zone $address zone=addresses:10m rate=${plan.limits.address_requests_per_s}r/s;
    limit_conn_zone $address zone=streams_of_addresses:10m;
    limit_req_status 429;
    limit_conn_status 429;

    # A person's browser that asks for a document is answered with a page, everybody else with a problem document.
    map "$request_method $http_accept" $person { "~^(GET|HEAD) .*text/html" 1; default ""; }

    # A call that may be sent twice although it writes.
    map "$request_method $http_idempotency_key" $keyed { "~^(POST|PATCH) ." 1; default ""; }

    # Public answers, for as long as they say. One reader fetches them anew, the others get the last ones meanwhile.
    proxy_cache_path ${plan.cache_folder} keys_zone=public:1m max_size=${balancers.CACHE_MIB}m inactive=10s use_temp_path=off;
    proxy_cache_key $uri;
    proxy_cache_lock on;
    proxy_cache_use_stale updating;

    proxy_http_version 1.1;
    proxy_set_header Connection "";
    proxy_set_header Host $http_host;
    proxy_set_header X-Request-Id $request_id;
    proxy_set_header X-Forwarded-For $client_address;
    proxy_set_header X-Forwarded-Proto $forwarded_proto;
    proxy_connect_timeout 1s;
    proxy_read_timeout ${balancers.ANSWER_WITHIN_S}s;
    proxy_next_upstream error timeout;
    proxy_next_upstream_tries 3;
    proxy_next_upstream_timeout 10s;
    recursive_error_pages on;
    error_page 418 = @again;
% for problem, statuses in balancers.OWN_ERRORS.items():
    error_page ${" ".join(map(str, statuses))} = /-/${problem.slug}-${problem.code};
% endfor

% for service, processes in plan.processes.items():
${upstream(service, [process.public for process in processes])}\
% endfor
% for service in plan.internal:
${upstream(f"{service}_inside", [process.internal for process in plan.processes[service]])}\
% endfor
<% hsts = f'add_header Strict-Transport-Security "{balancers.HSTS}" always;' if plan.certificate else "" %>\
% if plan.certificate:

    server { listen ${plan.listen}; return 308 https://$host${plan.tls_port}$request_uri; }

    server {
        listen ${plan.listen_tls} ssl http2;
        ssl_certificate ${plan.certificate};
        ssl_certificate_key ${plan.key};
        ssl_protocols TLSv1.2 TLSv1.3;
        ssl_session_cache shared:tls:10m;
        ${hsts}
% else:

    server {
        listen ${plan.listen};
% endif
% for route in routes:

        location ~ "^(${route.path})$" {
            proxy_pass http://${route.service};
    % if route.private:
        % for network in plan.operators:
            allow ${network};
        % endfor
            deny all;
    % endif
    % if route.stream:
            limit_conn streams_of_addresses ${plan.limits.address_streams};
            proxy_buffering off;
            proxy_read_timeout ${balancers.STREAM_SILENT_MAX_S}s;
            error_page 429 502 504 = @turned_away;
    % else:
${request_limits()}\
        % if route.cached:
            proxy_cache public;
        % endif
        % if route.repeatable:
${retry_writes()}\
        % else:
            set $service ${route.service};
            if ($keyed) { return 418; }
        % endif
    % endif
        }
% endfor

        location @again {
${request_limits()}\
${retry_writes()}\
            proxy_pass http://$service;
        }
        location @turned_away { default_type text/event-stream; ${hsts} \
add_header Cache-Control no-store always; return 200 "${balancers.REJECTED}"; }
        location / { return 404; }
${problems(hsts)}\
    }
% for service, address in plan.internal.items():

    ## An internal API. Every call is signed and may be retried; the address is for services only.
    server {
        listen ${address};
        client_max_body_size ${balancers.INSIDE_BODY_MAX_KIB}k;
        client_body_buffer_size ${balancers.INSIDE_BODY_MAX_KIB}k;
        location /internal/ {
            proxy_pass http://${service}_inside;
${retry_writes()}\
        }
        location / { return 404; }
${problems()}\
    }
% endfor
}
