// nginx as its users set it up before replicas that stream: one worker, nothing buffered, kept-alive upstreams.

export interface NginxPlace {
  /** For its files; it must exist. */
  readonly folder: string;
  readonly port: number;
  /** Ports of the replicas. */
  readonly replicas: readonly number[];
  /** How it chooses among them; round robin where absent. */
  readonly choice?: string;
}

export function nginxConfig({ folder, port, replicas, choice }: NginxPlace): string {
  return `
worker_processes 1;
daemon off;
pid ${folder}/nginx.pid;
error_log ${folder}/nginx-error.log;
events { worker_connections 8192; }
http {
  access_log off;
  client_body_temp_path ${folder}/nginx-body;
  proxy_temp_path ${folder}/nginx-proxy;
  fastcgi_temp_path ${folder}/nginx-fastcgi;
  uwsgi_temp_path ${folder}/nginx-uwsgi;
  scgi_temp_path ${folder}/nginx-scgi;
  client_max_body_size 64m;
  client_body_buffer_size 1m;
  keepalive_requests 1000000;
  upstream replicas {
${choice === undefined ? '' : `    ${choice};\n`}${replicas.map((each) => `    server 127.0.0.1:${each};`).join('\n')}
    keepalive 1024;
    keepalive_requests 1000000;
  }
  server {
    listen 127.0.0.1:${port} backlog=4096;
    tcp_nodelay on;
    location / {
      proxy_pass http://replicas;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
      proxy_read_timeout 600s;
    }
  }
}
`;
}
