package lamella;

import java.lang.reflect.Field;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.function.Function;
import java.util.function.Predicate;
import java.util.stream.Stream;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;

/**
 * Objects of Python behind Java interfaces, which are asked once for what never changes.
 *
 * Spark compares, hashes and asks these objects hundreds of times while it plans a query, and each call of Python is a
 * round trip through a socket.
 */
public final class Proxies {
    private static final String PY4J = "py4j.reflection.PythonProxyHandler";
    /** The methods of a class of Spark call ours directly, or by a few frames of Scala's. */
    private static final int NEAREST_FRAMES = 64;

    /**
     * Returns what is remembered of the objects of a class. Each text has words, separated by blanks. remembered: methods
     * without arguments whose answer is the same for one object; ofAll: for all objects; unless: pairs of such a method
     * and a class of Spark for which it has another answer.
     */
    public Kind kind(String remembered, String ofAll, String unless) {
        return new Kind(remembered, ofAll, unless);
    }

    /** Returns py4j's id of the object of Python behind a Java object; null: there is none. */
    public String idOf(Object given) throws Exception {
        if (given == null || !Proxy.isProxyClass(given.getClass())) {
            return null;
        }
        InvocationHandler handler = Proxy.getInvocationHandler(given);
        if (handler instanceof Remembering) {
            handler = ((Remembering) handler).handler;
        }
        if (!handler.getClass().getName().equals(PY4J)) {
            return null;
        }
        Field id = handler.getClass().getDeclaredField("id");
        id.setAccessible(true);
        return (String) id.get(handler);
    }

    /** What is remembered of the objects of a class. */
    public static final class Kind {
        private final Set remembered;
        private final Set ofAll;
        private final Map unless = new HashMap();
        private final Map shared = new HashMap();
        private final Map returned = new HashMap();

        Kind(String remembered, String ofAll, String unless) {
            this.remembered = words(remembered);
            this.ofAll = words(ofAll);
            String[] pairs = unless.split(" ");
            for (int at = 0; at + 1 < pairs.length; at += 2) {
                this.unless.put(pairs[at], pairs[at + 1]);
            }
        }

        private static Set words(String text) {
            Set found = new HashSet();
            String[] each = text.split(" ");
            for (int at = 0; at < each.length; at++) {
                found.add(each[at]);
            }
            return found;
        }

        /** Sets the kind of the objects that a method returns. */
        public void returning(String method, Kind kind) {
            returned.put(method, kind);
        }

        /** Returns an object with the interfaces of a proxy of Python's, which stands for it. */
        public Object around(Object python) {
            return around(python, new HashMap());
        }

        /** The same for an object of which answers are known, by the names of the methods. */
        public Object around(Object python, Map answers) {
            return around(python, answers, null, null);
        }

        /**
         * The same for a scan that Spark's own scan stands for, unless it is narrowed when it runs. narrows: whether
         * something leaves out blocks of a scan, null for never.
         */
        public Object around(Object python, Map answers, Scan plain, Predicate narrows) {
            Class type = python.getClass();
            Remembering handler = new Remembering(this, python, answers, plain, narrows);
            return Proxy.newProxyInstance(type.getClassLoader(), type.getInterfaces(), handler);
        }
    }

    /** Passes calls to Python, unless the answer is known. Objects are equal if their keys, Python's toString, are. */
    static final class Remembering implements InvocationHandler {
        private final Kind kind;
        private final Object python;
        private final InvocationHandler handler;
        private final Map answers;
        private final Scan plain;
        private final Predicate narrows;
        /** Ids of the threads that have called filter(): the next batch of each is not that of the scan. */
        private final Set filtering = new HashSet();
        private PartitionReaderFactory plainFactory;
        private Object description;
        private int changes;

        Remembering(Kind kind, Object python, Map answers, Scan plain, Predicate narrows) {
            this.kind = kind;
            this.python = python;
            this.answers = answers;
            this.plain = plain;
            this.narrows = narrows;
            this.handler = Proxy.getInvocationHandler(python);
        }

        public Object invoke(Object self, Method method, Object[] arguments) throws Throwable {
            String name = method.getName();
            int count = arguments == null ? 0 : arguments.length;
            if (count == 0) {
                if (name.equals("toString")) {
                    return key();
                }
                if (name.equals("hashCode")) {
                    return Integer.valueOf(key().hashCode());
                }
                if (name.equals("toBatch")) {
                    return batch(self, method);
                }
                if (name.equals("description")) {
                    return description(method);
                }
                if (kind.ofAll.contains(name)) {
                    return once(kind.shared, method);
                }
                if (kind.remembered.contains(name) && !isCalledFrom((String) kind.unless.get(name))) {
                    return once(answers, method);
                }
            } else if (count == 1 && name.equals("equals")) {
                Object other = arguments[0];
                return Boolean.valueOf(self == other || (other != null && key().equals(other.toString())));
            } else if (name.equals("filter")) {
                synchronized (filtering) {
                    filtering.add(Long.valueOf(Thread.currentThread().getId()));
                }
                Object nothing = call(method, arguments);
                changed();
                return nothing;
            } else if (name.equals("toMicroBatchStream")) {
                Object stream = call(method, arguments);
                synchronized (answers) {
                    answers.clear(); // they were those of a scan of one snapshot
                }
                changed();
                return stream;
            }
            Kind returned = (Kind) kind.returned.get(name);
            Object answer = call(method, arguments);
            return returned == null ? answer : returned.around(answer);
        }

        Object call(Method method, Object[] arguments) throws Throwable {
            return handler.invoke(python, method, arguments);
        }

        String key() throws Throwable {
            return (String) once(answers, Object.class.getMethod("toString", new Class[0]));
        }

        private Object once(Map known, Method method) throws Throwable {
            String name = method.getName();
            synchronized (known) {
                if (known.containsKey(name)) {
                    return known.get(name);
                }
            }
            Object answer = call(method, null); // without the lock: Python calls back
            synchronized (known) {
                known.put(name, answer);
            }
            return answer;
        }

        /** The text for plans, which Spark writes again whenever it changes a plan. */
        private Object description(Method method) throws Throwable {
            int before;
            synchronized (this) {
                if (description != null) {
                    return description;
                }
                before = changes;
            }
            Object text = call(method, null); // without the lock: Python calls back
            synchronized (this) {
                if (changes == before) {
                    description = text;
                }
            }
            return text;
        }

        /** The reader factory of Spark's own scan, made once: each one sends the settings of Hadoop to all executors. */
        synchronized PartitionReaderFactory plainFactory() {
            if (plainFactory == null) {
                plainFactory = plain.toBatch().createReaderFactory();
            }
            return plainFactory;
        }

        /** Join keys or subqueries have left out blocks, which the description tells. */
        synchronized void changed() {
            description = null;
            changes++;
        }

        private static boolean isCalledFrom(final String name) {
            if (name == null) {
                return false;
            }
            Object found = StackWalker.getInstance().walk(new Function() {
                public Object apply(Object frames) {
                    return Boolean.valueOf(((Stream) frames).limit(NEAREST_FRAMES).anyMatch(new Predicate() {
                        public boolean test(Object frame) {
                            return ((StackWalker.StackFrame) frame).getClassName().contains(name);
                        }
                    }));
                }
            });
            return ((Boolean) found).booleanValue();
        }

        private Object batch(Object self, Method method) throws Throwable {
            boolean isFiltered;
            synchronized (filtering) {
                isFiltered = filtering.remove(Long.valueOf(Thread.currentThread().getId()));
            }
            return new LaterBatch(this, self, method, isFiltered ? (Batch) call(method, null) : null);
        }
    }

    /**
     * The batch of a scan, made when it is read: Spark compares many that it never reads. It is that of Spark's own scan
     * if nothing narrows the scan, otherwise Python makes it.
     */
    static final class LaterBatch implements Batch {
        private final Remembering scan;
        private final Object self;
        private final Method method;
        private boolean isPlain;
        private Batch made;

        LaterBatch(Remembering scan, Object self, Method method, Batch made) {
            this.scan = scan;
            this.self = self;
            this.method = method;
            this.made = made;
        }

        private synchronized Batch made() {
            if (made == null) {
                isPlain = scan.plain != null && (scan.narrows == null || !scan.narrows.test(self));
                try {
                    made = isPlain ? scan.plain.toBatch() : (Batch) scan.call(method, null);
                } catch (Throwable error) {
                    throw unchecked(error);
                }
            }
            return made;
        }

        private static RuntimeException unchecked(Throwable error) {
            if (error instanceof Error) {
                throw (Error) error;
            }
            return error instanceof RuntimeException ? (RuntimeException) error : new RuntimeException(error);
        }

        public InputPartition[] planInputPartitions() {
            InputPartition[] partitions = made().planInputPartitions();
            if (!isPlain) {
                scan.changed();
            }
            return partitions;
        }

        public PartitionReaderFactory createReaderFactory() {
            Batch batch = made();
            return isPlain ? scan.plainFactory() : batch.createReaderFactory();
        }

        public synchronized String toString() {
            try {
                return made == null || isPlain ? scan.key() : made.toString();
            } catch (Throwable error) {
                throw unchecked(error);
            }
        }

        public int hashCode() {
            return toString().hashCode();
        }

        public boolean equals(Object other) {
            return this == other || (other != null && toString().equals(other.toString()));
        }
    }
}
