package lamella;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.function.Consumer;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.catalyst.parser.ParserInterface;
import scala.runtime.AbstractFunction2;

/** Sessions that Spark makes itself: those of Spark Connect, of foreachBatch, and of newSession(). */
public final class Sessions {
    /** Gives each session that is made from now on to a consumer, when its first statement or name is parsed. */
    public Watch watch(SparkSessionExtensions extensions, Consumer consumer) {
        Watch watch = new Watch(consumer);
        extensions.injectParser(watch);
        return watch;
    }

    /** Makes the parsers of new sessions, until it is ended. */
    public static final class Watch extends AbstractFunction2 {
        private final Consumer consumer;
        private volatile boolean isEnded;

        Watch(Consumer consumer) {
            this.consumer = consumer;
        }

        public void end() {
            isEnded = true;
        }

        public Object apply(Object session, Object parser) {
            if (isEnded) {
                return parser;
            }
            Class type = ParserInterface.class;
            return Proxy.newProxyInstance(type.getClassLoader(), new Class[] {type}, new Parser(this, session, parser));
        }
    }

    /** Passes calls to the parser of a session. */
    static final class Parser implements InvocationHandler {
        private final Watch watch;
        private final Object session;
        private final Object parser;
        private boolean isKnown;

        Parser(Watch watch, Object session, Object parser) {
            this.watch = watch;
            this.session = session;
            this.parser = parser;
        }

        public Object invoke(Object self, Method method, Object[] arguments) throws Throwable {
            if (method.getDeclaringClass() != Object.class) {
                tell();
            }
            try {
                return method.invoke(parser, arguments);
            } catch (InvocationTargetException error) {
                throw error.getCause();
            }
        }

        /** Other threads wait until the consumer has the session; what it parses itself does not. */
        private synchronized void tell() {
            if (!isKnown && !watch.isEnded) {
                isKnown = true;
                boolean isDone = false;
                try {
                    watch.consumer.accept(session);
                    isDone = true;
                } finally {
                    isKnown = isDone;
                }
            }
        }
    }
}
