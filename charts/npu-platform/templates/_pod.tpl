{{/* Security of a container that must be root: see the comment where it is used. Takes the root. */}}
{{- define "npu-platform.rootContainerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsUser: 0
runAsGroup: 0
{{- with .Values.podSecurity.seLinuxOptions }}
seLinuxOptions:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Security of a Pod of the "restricted" standard. */}}
{{- define "npu-platform.restrictedPodSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{/* Security of a container of the "restricted" standard. */}}
{{- define "npu-platform.restrictedContainerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* Image and pull policy of a container. Takes (dict "root" $ "image" .Values.guard.image). */}}
{{- define "npu-platform.containerImage" -}}
image: {{ include "npu-platform.image" . }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
{{- end -}}

{{/* What every Pod of ours says. Takes the root. */}}
{{- define "npu-platform.podBasics" -}}
enableServiceLinks: false
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Where a component's Pods run, without affinity. Takes the component's values. */}}
{{- define "npu-platform.placement" -}}
terminationGracePeriodSeconds: {{ .terminationGracePeriodSeconds }}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/*
An affinity, with an expression added to every node selector term (terms are alternatives). Takes
(dict "affinity" .Values.plugin.affinity "expression" (dict "key" … "operator" …)).
*/}}
{{- define "npu-platform.affinityWith" -}}
{{- $affinity := .affinity | default dict | deepCopy -}}
{{- $mine := .expression -}}
{{- $node := $affinity.nodeAffinity | default dict -}}
{{- $required := $node.requiredDuringSchedulingIgnoredDuringExecution | default dict -}}
{{- $terms := list -}}
{{- range ($required.nodeSelectorTerms | default (list dict)) -}}
{{- $expressions := append (.matchExpressions | default list) $mine -}}
{{- $terms = append $terms (set (deepCopy .) "matchExpressions" $expressions) -}}
{{- end -}}
{{- $required = set $required "nodeSelectorTerms" $terms -}}
{{- $node = set $node "requiredDuringSchedulingIgnoredDuringExecution" $required -}}
{{- toYaml (set $affinity "nodeAffinity" $node) -}}
{{- end -}}

{{/*
Update strategy: the parameters of a rolling update only where there is one; the API server refuses
them otherwise. Takes the component's values.
*/}}
{{- define "npu-platform.updateStrategy" -}}
{{- $rolling := eq .updateStrategy.type "RollingUpdate" -}}
{{- toYaml (ternary .updateStrategy (pick .updateStrategy "type") $rolling) -}}
{{- end -}}

{{/* Port and probes of a service, by HTTPS where it has a certificate. Takes the component's values. */}}
{{- define "npu-platform.portAndProbes" -}}
{{- $scheme := ternary ", scheme: HTTPS" "" (ne (dig "tls" "secretName" "" .) "") -}}
ports:
  - name: http
    containerPort: 8080
startupProbe:
  httpGet: {path: /healthz, port: http{{ $scheme }}}
  {{- toYaml .probes.startup | nindent 2 }}
livenessProbe:
  httpGet: {path: /healthz, port: http{{ $scheme }}}
  {{- toYaml .probes.liveness | nindent 2 }}
readinessProbe:
  httpGet: {path: /readyz, port: http{{ $scheme }}}
  {{- toYaml .probes.readiness | nindent 2 }}
{{- end -}}

{{/*
Volume of those who read exporters by TLS: the authority that signed their certificate, never its key,
and the certificate to show. Takes the root.
*/}}
{{- define "npu-platform.exporterClientTls" -}}
name: exporter-tls
projected:
  sources:
    - secret:
        name: {{ .Values.exporter.tls.secretName }}
        items: [{key: ca.crt, path: ca.crt}]
    {{- with .Values.exporter.tls.clientSecretName }}
    - secret:
        name: {{ . }}
        items: [{key: tls.crt, path: tls.crt}, {key: tls.key, path: tls.key}]
    {{- end }}
{{- end -}}

{{/* Arguments that every service takes. Takes (dict "root" $ "values" .Values.guard). */}}
{{- define "npu-platform.commonArgs" -}}
- --log-level={{ .root.Values.logging.level }}
- --log-format={{ .root.Values.logging.format }}
{{- range .values.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end -}}

{{/* Annotations of a Pod that reads configuration. Takes (dict "values" … "config" "rendered text"). */}}
{{- define "npu-platform.podAnnotations" -}}
checksum/config: {{ .config | sha256sum }}
{{- with .values.podAnnotations }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/*
Labels of a Pod. No version among them: a release that changes nothing for a component must not
restart it on thousands of boards. A user's own labels cannot replace those that selectors use.
Takes (dict "root" $ "component" "guard").
*/}}
{{- define "npu-platform.podLabels" -}}
{{- $own := include "npu-platform.selectorLabels" . | fromYaml -}}
{{- $own = set $own "app.kubernetes.io/part-of" "npu-platform" -}}
{{- toYaml (merge $own ((index .root.Values .component).podLabels | default dict) .root.Values.commonLabels) -}}
{{- end -}}

{{/* Where the simulated board of a node lies, on the node. */}}
{{- define "npu-platform.simulatedBoardDir" -}}/var/lib/npu-platform/board{{- end -}}

{{/*
Annotations of a hook. `before-hook-creation` clears what a failed run of an older Helm left.
Takes (dict "events" "post-delete" "weight" -10).
*/}}
{{- define "npu-platform.hook" -}}
helm.sh/hook: {{ .events }}
helm.sh/hook-weight: {{ .weight | quote }}
helm.sh/hook-delete-policy: {{ .policy | default "before-hook-creation,hook-succeeded" }}
{{- end -}}
