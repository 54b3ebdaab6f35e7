# Sourced by jobs/submit and jobs/launch: the lines of a manifest. Both compute with its numbers, and what bash computes
# with it also runs.
# shellcheck shell=bash disable=SC2034

# FILE: its text
manifest_text() {
    [[ -r $1 ]] || fail "cannot read the manifest $1; create it with jobs/manifest"
    [[ -z $(tail -c 1 "$1" | tr -d '\0') ]] || fail "$1 is truncated; remove it and create it again with jobs/manifest"
    tr -d '\0' <"$1"
}

# LINE into index, name, nodes, ranks_of_line and settings_of_line; fails for one that jobs/manifest does not write.
take_manifest_line() {
    local number='^[1-9][0-9]{0,7}$' rest setting
    read -r index name nodes ranks_of_line rest <<<"$1"
    [[ $index =~ ^(0|[1-9][0-9]{0,7})$ && $name =~ ^[A-Za-z0-9_][A-Za-z0-9_.-]*$ ]] || return 1
    [[ $nodes =~ $number && $ranks_of_line =~ $number ]] || return 1
    read -ra settings_of_line <<<"$rest"
    for setting in ${settings_of_line[@]+"${settings_of_line[@]}"}; do
        [[ $setting =~ ^[a-z][a-z0-9_.-]*= ]] || return 1
    done
}

# FILE LINE
refuse_manifest_line() {
    fail "$1 is damaged: \"${2:0:100}\" is no line of a manifest (INDEX NAME NODES RANKS KEY=VALUE …); remove the file and create it again with jobs/manifest"
}
