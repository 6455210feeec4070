/* ONNX Runtime's library, with a CUDA provider that only writes down its options: REAL is the library that does all
   else, RECORD the file that gets a line for each option and each session. The places of the functions in the table are
   part of ONNX Runtime's interface and never change. */

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Those of interface 17, the one that the program asks for. */
#define FUNCTIONS 276
enum { PROVIDERS = 125, RELEASE_PROVIDERS = 126, APPEND = 204, CREATE = 205, UPDATE = 206, RELEASE = 208 };

typedef struct {
    const void *(*get)(unsigned version);
    const char *(*version)(void);
} Base;

static const void *functions[FUNCTIONS];

static void note(const char *what, const char *key, const char *value) {
    FILE *file = fopen(RECORD, "a");
    if (file) {
        fprintf(file, "%d %s %s %s\n", (int)getpid(), what, key, value);
        fclose(file);
    }
}

static void *providers(char ***names, int *count) {
    static char *known[] = {"CUDAExecutionProvider", "CPUExecutionProvider"};
    *names = known;
    *count = 2;
    return NULL;
}

static void *release_providers(char **names, int count) { return NULL; }

static void *create(void **options) {
    *options = malloc(1);
    return NULL;
}

static void *update(void *options, const char *const *keys, const char *const *values, size_t count) {
    for (size_t at = 0; at < count; at++) note("option", keys[at], values[at]);
    return NULL;
}

static void *append(void *session, const void *options) {
    note("session", "-", "-");
    return NULL;
}

static void release(void *options) { free(options); }

static const Base *real(void) {
    void *library = dlopen(REAL, RTLD_NOW);
    const Base *(*get)(void) = library ? (const Base *(*)(void))dlsym(library, "OrtGetApiBase") : NULL;
    return get ? get() : NULL;
}

static const void *get(unsigned version) {
    const void *const *found = real()->get(version);
    if (!found) return NULL;
    memcpy(functions, found, sizeof functions);
    functions[PROVIDERS] = providers;
    functions[RELEASE_PROVIDERS] = release_providers;
    functions[CREATE] = create;
    functions[UPDATE] = update;
    functions[APPEND] = append;
    functions[RELEASE] = release;
    return functions;
}

static const char *version(void) { return real()->version(); }

const Base *OrtGetApiBase(void) {
    static const Base base = {get, version};
    return &base;
}
